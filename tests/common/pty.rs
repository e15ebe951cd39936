//! The real program on a pseudo terminal: press keys, read the screen.
#![allow(dead_code)] // each test binary uses a part of it

use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum duration until anything appears. A limit against hanging, not a measurement.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Our end of the terminal. Dropping it closes every descriptor of it.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    reader: Box<dyn Read + Send>,
    keys: Box<dyn Write + Send>,
}

impl Terminal {
    /// Returns what was written within `limit`; `None` if nothing was, empty if the other end is
    /// closed.
    fn read(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let raw = self.master.as_raw_fd().expect("a Unix terminal");
        // SAFETY: the descriptor is the master's, which outlives this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(raw) };
        let wait =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).expect("poll");
        if ready == 0 {
            return None;
        }
        let mut buffer = vec![0; 4096];
        // EIO: every process on the other end has exited.
        let n = self.reader.read(&mut buffer).unwrap_or(0);
        buffer.truncate(n);
        Some(buffer)
    }
}

pub struct Session {
    parser: vt100::Parser,
    /// `None` after [`Session::hang_up`].
    terminal: Option<Terminal>,
    pub child: Box<dyn Child + Send + Sync>,
    /// Everything that the program wrote, for checks of escape sequences.
    pub raw: Vec<u8>,
}

impl Session {
    /// Starts sampletop with `args` in the folder `dir`, on a terminal of `rows` and `columns`.
    pub fn start(args: &[&str], rows: u16, columns: u16, dir: &std::path::Path) -> Session {
        Session::start_with(&[], args, rows, columns, dir)
    }

    /// Does the same with these variables in its environment.
    pub fn start_with(
        variables: &[(&str, &str)],
        args: &[&str],
        rows: u16,
        columns: u16,
        dir: &std::path::Path,
    ) -> Session {
        let pty = native_pty_system()
            .openpty(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 })
            .expect("a pseudo terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_sampletop"));
        command.args(args);
        command.cwd(dir);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        // Keeps it from the saved session and the configuration of the user who runs the tests.
        command.env("XDG_STATE_HOME", dir.join(".state"));
        command.env("XDG_CONFIG_HOME", dir.join(".config"));
        variables.iter().for_each(|(name, value)| command.env(name, value));
        let child = pty.slave.spawn_command(command).expect("sampletop starts");
        drop(pty.slave);
        let reader = pty.master.try_clone_reader().expect("a reader");
        let keys = pty.master.take_writer().expect("a writer");
        Session {
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            terminal: Some(Terminal { master: pty.master, reader, keys }),
            child,
            raw: Vec::new(),
        }
    }

    pub fn press(&mut self, keys: &str) {
        let terminal = self.terminal.as_mut().expect("not hung up");
        terminal.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        terminal.keys.flush().expect("the terminal takes keys");
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.terminal.as_ref().expect("not hung up").master.resize(size).expect("resize");
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
    }

    /// Stops the program, waits until it has stopped, and sets the terminal as a shell does before
    /// it prompts.
    pub fn stop_and_take_the_terminal(&mut self, pid: u32) {
        self.signal(pid, rustix::process::Signal::STOP);
        let stat = format!("/proc/{pid}/stat");
        let deadline = Instant::now() + LIMIT;
        while !std::fs::read_to_string(&stat).expect("it lives").contains(") T ") {
            assert!(Instant::now() < deadline, "not stopped");
            std::thread::yield_now();
        }
        let raw = self
            .terminal
            .as_ref()
            .expect("not hung up")
            .master
            .as_raw_fd()
            .expect("a Unix terminal");
        // SAFETY: the descriptor is the master's, which outlives this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(raw) };
        let mut modes = rustix::termios::tcgetattr(fd).expect("its modes");
        modes.local_modes |=
            rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO;
        rustix::termios::tcsetattr(fd, rustix::termios::OptionalActions::Now, &modes)
            .expect("new modes");
    }

    pub fn signal(&self, pid: u32, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it can be signalled");
    }

    /// Writes text to the terminal as another program would.
    pub fn scribble(&mut self, text: &str) {
        while let Some(bytes) = self.read(Duration::ZERO).filter(|bytes| !bytes.is_empty()) {
            self.feed(&bytes);
        }
        self.parser.process(text.as_bytes());
    }

    /// Closes our end of the terminal, as a lost ssh connection does.
    pub fn hang_up(&mut self) {
        self.terminal = None;
    }

    /// Returns the screen's text.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    pub fn on_alternate_screen(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    pub fn cursor_hidden(&self) -> bool {
        self.parser.screen().hide_cursor()
    }

    /// Reads until `wanted` holds for the screen. Panics with the screen if it does not within
    /// [`LIMIT`].
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            match self.read(deadline.saturating_duration_since(Instant::now())) {
                Some(bytes) if bytes.is_empty() => {
                    panic!("no {what}; sampletop ended, the screen is:\n{screen}")
                }
                Some(bytes) => self.feed(&bytes),
                None => panic!("no {what} within {LIMIT:?}; the screen is:\n{screen}"),
            }
        }
    }

    fn read(&mut self, limit: Duration) -> Option<Vec<u8>> {
        match &mut self.terminal {
            Some(terminal) => terminal.read(limit),
            None => {
                std::thread::sleep(limit);
                None
            }
        }
    }

    /// Waits for the exit and reads all remaining output. Returns the exit code.
    pub fn wait_end(&mut self) -> u32 {
        self.wait_status().exit_code()
    }

    /// Like `wait_end`, but returns the status, with the signal that ended it by `strsignal`'s
    /// name.
    pub fn wait_status(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                break status;
            }
            assert!(Instant::now() < deadline, "still running; the screen is:\n{}", self.screen());
            if let Some(bytes) = self.read(Duration::from_millis(20)) {
                self.feed(&bytes);
            }
        };
        // By now all its output is in the terminal's buffer.
        while let Some(bytes) = self.read(Duration::ZERO).filter(|bytes| !bytes.is_empty()) {
            self.feed(&bytes);
        }
        status
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
