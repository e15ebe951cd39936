//! The live view on a pseudo terminal.

use std::io::Read;
use std::num::NonZero;
use std::path::Path;

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};

/// A live view that draws on a terminal; it is killed when dropped.
pub struct LiveView {
    child: Box<dyn Child + Send + Sync>,
    reader: Box<dyn Read + Send>,
    parser: vt100::Parser,
    /// Bytes that it has drawn.
    pub drawn: usize,
}

impl LiveView {
    /// Starts the live view of a process on a terminal of these rows and columns.
    pub fn start(program: &Path, pid: u32, options: &[&str], (rows, columns): (u16, u16)) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).expect("a pseudo terminal");
        let mut command = CommandBuilder::new(program);
        command.args(["-p", &pid.to_string(), "--secure"]);
        command.args(options);
        command.env("TERM", "xterm-256color");
        let reader = pty.master.try_clone_reader().expect("a reader");
        let child = pty.slave.spawn_command(command).expect("it starts");
        let cells = |count| NonZero::new(count).expect("a terminal has cells");
        let parser = vt100::Parser::new(cells(rows), cells(columns), 0);
        LiveView { child, reader, parser, drawn: 0 }
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("it runs")
    }

    /// Reads until the screen has the text. Panics if the program ends.
    pub fn wait_for(&mut self, text: &str) {
        while !self.parser.screen().contents().contains(text) {
            assert!(self.read(), "it ended: {}", self.parser.screen().contents());
        }
    }

    /// Reads what it draws next. Returns false if it has ended.
    pub fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let count = self.reader.read(&mut buffer).unwrap_or(0);
        self.parser.process(&buffer[..count]);
        self.drawn += count;
        count > 0
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
