//! The real program on a pseudo terminal: press keys, read the screen.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// How long anything may take to appear. A limit against hanging, not a measure.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Session {
    parser: vt100::Parser,
    bytes: Receiver<Vec<u8>>,
    keys: Box<dyn Write + Send>,
    master: Option<Box<dyn MasterPty + Send>>,
    pub child: Box<dyn Child + Send + Sync>,
    /// Everything the program wrote, for looking at escape sequences.
    pub raw: Vec<u8>,
}

impl Session {
    /// Starts sampletop with `args` on a terminal of so many rows and columns, in the folder `dir`.
    pub fn start(args: &[&str], rows: u16, columns: u16, dir: &std::path::Path) -> Session {
        let pty = native_pty_system()
            .openpty(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 })
            .expect("a pseudo terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_sampletop"));
        command.args(args);
        command.cwd(dir);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pty.slave.spawn_command(command).expect("sampletop starts");
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().expect("a reader");
        let keys = pty.master.take_writer().expect("a writer");
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = reader.read(&mut buffer) {
                if n == 0 || sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Session {
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            bytes,
            keys,
            master: Some(pty.master),
            child,
            raw: Vec::new(),
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self.keys.flush().expect("the terminal takes keys");
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.as_ref().expect("not hung up").resize(size).expect("resize");
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
    }

    /// Closes our end of the terminal, as a lost ssh connection does.
    pub fn hang_up(&mut self) {
        self.master = None;
        self.keys = Box::new(std::io::sink());
    }

    /// The screen's text.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    pub fn on_alternate_screen(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    pub fn cursor_hidden(&self) -> bool {
        self.parser.screen().hide_cursor()
    }

    /// Reads until `wanted` holds for the screen; panics with the screen when it does not within [`LIMIT`].
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            match self.bytes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.feed(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("no {what} within {LIMIT:?}; the screen is:\n{screen}"),
                Err(RecvTimeoutError::Disconnected) => panic!("no {what}; sampletop ended, the screen is:\n{screen}"),
            }
        }
    }

    /// Waits for the end; answers the exit code, with all that was written read.
    pub fn wait_end(&mut self) -> u32 {
        let deadline = Instant::now() + LIMIT;
        let code = loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                break status.exit_code();
            }
            assert!(Instant::now() < deadline, "still running; the screen is:\n{}", self.screen());
            if let Ok(bytes) = self.bytes.recv_timeout(Duration::from_millis(20)) {
                self.feed(&bytes);
            }
        };
        while let Ok(bytes) = self.bytes.recv_timeout(Duration::from_millis(200)) {
            self.feed(&bytes);
        }
        code
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        self.parser.process(bytes);
    }
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("a terminal has cells")
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
