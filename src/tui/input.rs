//! The keyboard: a thread that turns the terminal's events into [`Input`]s.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event::{
    self as term, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent,
    MouseEventKind,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::escape::{Joined, Joiner};
use crate::app::Input;
use crate::app::key::{Key, Mouse, MouseKind};

/// Maximum time between two checks of an idle keyboard, and so the maximum delay of a resize.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Starts the thread. `send` gets each input, and `None` once when the terminal is gone. The thread
/// ends after that, or when `send` returns false. It only reads, so it need not be stopped when the
/// program ends.
pub fn start(
    mut send: impl FnMut(Option<Input>) -> bool + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let terminal = terminal()?;
    std::thread::Builder::new().name("keyboard".into()).spawn(move || {
        if read_all(&terminal, &mut send).is_err() {
            send(None);
        }
    })
}

/// Opens the terminal that crossterm reads too: stdin if that is a terminal, else the controlling
/// terminal.
fn terminal() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        stdin.as_fd().try_clone_to_owned()
    } else {
        Ok(File::open("/dev/tty")?.into())
    }
}

/// Reads all input. Returns `Ok` when `send` returns false, `Err` when the terminal is gone.
fn read_all(terminal: &OwnedFd, send: &mut impl FnMut(Option<Input>) -> bool) -> io::Result<()> {
    let mut joiner = Joiner::default();
    let mut joined = Vec::new();
    let mut overlooked = false;
    loop {
        // Polled before crossterm reads, because crossterm spins for ever on a terminal that hung
        // up (0.29, `source/unix/mio.rs` ignores end of file and EIO).
        let wait = joiner
            .deadline()
            .map_or(LOOK_UP, |d| d.saturating_duration_since(Instant::now()).min(LOOK_UP));
        let mut fds = [PollFd::new(terminal, PollFlags::IN)];
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let readable = fds[0].revents().contains(PollFlags::IN);
        let mut any = false;
        while term::poll(Duration::ZERO)? {
            any = true;
            let mut size = None;
            match term::read()? {
                Event::Key(event) => {
                    if let Some(key) = translate(event) {
                        joiner.key(key, Instant::now(), &mut joined);
                    }
                }
                Event::Mouse(event) => joined.extend(translate_mouse(event).map(Joined::Mouse)),
                Event::Resize(width, height) => size = Some(Input::Resize { width, height }),
                _ => {}
            }
            if size.is_some_and(|size| !send(Some(size))) {
                return Ok(());
            }
            if !deliver(&mut joined, send) {
                return Ok(());
            }
        }
        joiner.expire(Instant::now(), &mut joined);
        if !deliver(&mut joined, send) {
            return Ok(());
        }
        // crossterm waits for edges and drops that of a key which arrives together with a resize
        // (0.29, `source/unix/mio.rs` returns at the signal). The key would stay unread until the
        // next one.
        if readable && !any && overlooked {
            let mut bytes = [0; 256];
            let n = rustix::io::retry_on_intr(|| rustix::io::read(terminal, &mut bytes))?;
            if n == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            for c in String::from_utf8_lossy(&bytes[..n]).chars() {
                joiner.key(plain(c), Instant::now(), &mut joined);
            }
            if !deliver(&mut joined, send) {
                return Ok(());
            }
        }
        overlooked = readable && !any;
        if overlooked {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Converts what a key sends by itself in raw mode. The [`Joiner`] converts sequences.
fn plain(c: char) -> Key {
    match c {
        '\x1b' => Key::Esc,
        '\r' => Key::Enter,
        '\t' => Key::Tab,
        '\x7f' => Key::Backspace,
        '\x01'..='\x1a' => Key::Ctrl(char::from(c as u8 - 1 + b'a')),
        c => Key::Char(c),
    }
}

fn deliver(joined: &mut Vec<Joined>, send: &mut impl FnMut(Option<Input>) -> bool) -> bool {
    joined.drain(..).all(|event| {
        send(Some(match event {
            Joined::Key(key) => Input::Key(key),
            Joined::Mouse(mouse) => Input::Mouse(mouse),
        }))
    })
}

fn translate(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Ctrl(c.to_ascii_lowercase())
        }
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::ALT) => Key::Alt(c),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Insert => Key::Insert,
        KeyCode::Delete => Key::Delete,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Enter => Key::Enter,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Esc => Key::Esc,
        KeyCode::F(n) => Key::F(n),
        _ => return None,
    })
}

fn translate_mouse(event: MouseEvent) -> Option<Mouse> {
    let kind = match event.kind {
        MouseEventKind::Down(MouseButton::Left) => MouseKind::Press,
        MouseEventKind::ScrollUp => MouseKind::WheelUp,
        MouseEventKind::ScrollDown => MouseKind::WheelDown,
        _ => return None,
    };
    Some(Mouse { kind, column: event.column, row: event.row })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_the_keys_that_crossterm_makes_of_them() {
        let keys: Vec<Key> = "q\x1b\r\t\x7f\x03\x0c".chars().map(plain).collect();
        let expected = [
            Key::Char('q'),
            Key::Esc,
            Key::Enter,
            Key::Tab,
            Key::Backspace,
            Key::Ctrl('c'),
            Key::Ctrl('l'),
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn crossterm_keys_become_ours() {
        let key = |code, modifiers| translate(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Key::Char('G')));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Ctrl('c')));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), Some(Key::Alt('x')));
        assert_eq!(key(KeyCode::PageUp, KeyModifiers::NONE), Some(Key::PageUp));
        assert_eq!(key(KeyCode::CapsLock, KeyModifiers::NONE), None);
        let release =
            KeyEvent::new_with_kind(KeyCode::Char('a'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(translate(release), None);
    }
}
