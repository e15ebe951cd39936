//! The terminal while the view uses it: raw mode and the alternate screen, given back on drop,
//! panic and suspend.

#![expect(unsafe_code, reason = "stops itself at Ctrl-Z, and gives the terminal back in a handler")]

use std::cell::Cell;
use std::io::{self, Stdout, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock};

use base64::prelude::{BASE64_STANDARD, Engine};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use super::theme::Theme;
use crate::app::AppState;
use crate::config;

/// True while the alternate screen is active, so that giving it back twice does nothing.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();
/// The terminal's modes before it was first taken.
static MODES: OnceLock<libc::termios> = OnceLock::new();
/// Messages of panics in other threads while the screen was taken.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Standard output. A drawing is held and written in one piece: each piece would wake up whatever
/// carries it. What is held is lost if the drawing ends in a panic: it must not follow the panic's
/// message.
struct Output<W> {
    out: W,
    held: Vec<u8>,
    drawing: Rc<Cell<bool>>,
    written: Rc<Cell<u64>>,
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // ratatui flushes before the synchronized update ends.
        if self.drawing.get() {
            return Ok(());
        }
        self.written.set(self.written.get() + self.held.len() as u64);
        let written = self.out.write_all(&self.held);
        self.held.clear();
        written.and_then(|()| self.out.flush())
    }
}

/// The taken terminal. Dropping it restores the terminal's former state.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Output<Stdout>>>,
    /// A drawing is under way.
    drawing: Rc<Cell<bool>>,
    /// Bytes written by the last drawing.
    written: Rc<Cell<u64>>,
    mouse: bool,
    theme: Theme,
}

impl Screen {
    /// Takes the terminal on stdout. From now on a panic of the calling thread gives it back before
    /// the message is printed. Panic messages of other threads are kept until the terminal is given
    /// back.
    pub fn enter(config: &config::Screen) -> io::Result<Screen> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            let drawing = std::thread::current().id();
            std::panic::set_hook(Box::new(move |info| {
                if std::thread::current().id() == drawing || !TAKEN.load(Ordering::SeqCst) {
                    restore();
                    before(info);
                } else if let Ok(mut said) = SAID.lock() {
                    // The view continues without that thread. If the panic of a parser is caught,
                    // the thread continues too.
                    said.push(info.to_string());
                }
            }));
        });
        // crossterm reads NO_COLOR itself, and writes sequences without colours then. Which colours
        // are used is decided in `config`.
        crossterm::style::force_color_output(true);
        remember_modes();
        let mouse = config.mouse;
        take(mouse)?;
        let (drawing, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let output = Output {
            out: io::stdout(),
            held: Vec::new(),
            drawing: Rc::clone(&drawing),
            written: Rc::clone(&written),
        };
        match Terminal::new(CrosstermBackend::new(output)) {
            Ok(terminal) => {
                Ok(Screen { terminal, drawing, written, mouse, theme: Theme::new(config) })
            }
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Returns the present width and height in cells.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|s| (s.width, s.height))
    }

    /// Writes the changed cells, as one synchronized update where the terminal supports it. Returns
    /// the number of bytes written.
    pub fn draw(&mut self, app: &AppState) -> io::Result<u64> {
        self.written.set(0);
        let theme = &self.theme;
        let drawn =
            draw_on(&mut self.terminal, &self.drawing, |frame| super::draw(frame, app, theme));
        drawn.map(|()| self.written.get())
    }

    /// Forgets the screen's content: the next drawing writes every cell.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Not `clear`: ratatui 0.30 queries the cursor position there. The keyboard's thread
        // receives the answer, so `clear` waits in vain for 2 s and fails.
        let size = self.terminal.size()?;
        self.terminal.resize(ratatui::layout::Rect::new(0, 0, size.width, size.height))
    }

    /// Takes the terminal again after an external stop (`kill -STOP`): the shell has set its own
    /// modes and written over the screen.
    pub fn resume(&mut self) -> io::Result<()> {
        // Resets crossterm's state: it does nothing where it assumes raw mode is set.
        let _ = disable_raw_mode();
        take(self.mouse)?;
        self.redraw()
    }

    /// Gives the terminal back, stops this process as Ctrl-Z does, and takes the terminal again
    /// when continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        // SAFETY: raise has no preconditions. The default action stops all threads until SIGCONT.
        unsafe { libc::raise(libc::SIGTSTP) };
        self.resume()
    }

    /// Takes mouse events, or no more: then the terminal selects text with the mouse.
    pub fn use_mouse(&mut self, taken: bool) -> io::Result<()> {
        self.mouse = taken;
        let out = self.terminal.backend_mut();
        if taken { execute!(out, EnableMouseCapture) } else { execute!(out, DisableMouseCapture) }
    }

    /// Copies `text` to the clipboard of the user's own terminal, also over ssh (OSC 52).
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let out = self.terminal.backend_mut();
        write!(out, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text))?;
        Write::flush(out)
    }
}

/// Draws in one piece, as one synchronized update.
fn draw_on<W: Write>(
    terminal: &mut Terminal<CrosstermBackend<Output<W>>>,
    drawing: &Cell<bool>,
    render: impl FnOnce(&mut Frame<'_>),
) -> io::Result<()> {
    queue!(terminal.backend_mut(), BeginSynchronizedUpdate)?;
    drawing.set(true);
    let drawn = terminal.draw(render).map(|_| ());
    drawing.set(false);
    execute!(terminal.backend_mut(), EndSynchronizedUpdate)?;
    drawn
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        for message in SAID.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default() {
            eprintln!("{message}");
        }
    }
}

fn take(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    let entered = execute!(out, EnterAlternateScreen, cursor::Hide)
        .and_then(|()| if mouse { execute!(out, EnableMouseCapture) } else { Ok(()) });
    if entered.is_err() {
        restore();
    }
    entered
}

/// Saves the terminal's modes for [`give_back_in_handler`].
fn remember_modes() {
    // SAFETY: all-zero is a valid `termios`; the call fills it.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(libc::STDIN_FILENO, &mut modes) == 0 {
            let _ = MODES.set(modes);
        }
    }
}

/// The bytes that [`restore`] writes.
const GIVE_BACK: &[u8] =
    b"\x1b[?2026l\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1049l\x1b[?25h";

/// Gives the terminal back if it is taken, with calls that are allowed in a handler of a fatal
/// signal.
pub fn give_back_in_handler() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // SAFETY: write and tcsetattr are async-signal-safe.
        unsafe {
            libc::write(libc::STDOUT_FILENO, GIVE_BACK.as_ptr().cast(), GIVE_BACK.len());
            if let Some(modes) = MODES.get() {
                libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes);
            }
        }
    }
}

/// Gives the terminal back if it is taken. Errors are ignored: nothing could be done about them.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(
            out,
            EndSynchronizedUpdate,
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::{Color, Modifier, Style};
    use ratatui::{TerminalOptions, Viewport};

    use super::*;

    /// Keeps what each write brings.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_drawing_is_written_in_one_piece() {
        let (drawing, written) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
        let mut output = Output {
            out: Writes::default(),
            held: Vec::new(),
            drawing: Rc::clone(&drawing),
            written: Rc::clone(&written),
        };
        write!(output, "begin cells ").and_then(|()| output.flush()).expect("held");
        assert_eq!((output.out.0.len(), written.get()), (0, 0));
        drawing.set(false);
        write!(output, "end").and_then(|()| output.flush()).expect("written");
        assert_eq!((&output.out.0[..], written.get()), (&[b"begin cells end".to_vec()][..], 15));
        output.flush().expect("nothing is left");
        assert_eq!(written.get(), 15);
    }

    #[test]
    fn a_changed_number_is_few_bytes() {
        let (drawing, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let output = Output {
            out: Writes::default(),
            held: Vec::new(),
            drawing: Rc::clone(&drawing),
            written: Rc::clone(&written),
        };
        let viewport = Viewport::Fixed(Rect::new(0, 0, 200, 60));
        let options = TerminalOptions { viewport };
        let backend = CrosstermBackend::new(output);
        let mut terminal = Terminal::with_options(backend, options).expect("it only writes");
        let mut bytes = |numbers: [f64; 2]| {
            written.set(0);
            draw_on(&mut terminal, &drawing, |frame| {
                let buffer = frame.buffer_mut();
                for row in 0..60 {
                    let shown = if row == 30 { numbers } else { [12.5, 3.0] };
                    let style = Style::new().fg(Color::Indexed(208)).add_modifier(Modifier::BOLD);
                    buffer.set_string(2, row, format!("{:>6.1}", shown[0]), style);
                    buffer.set_string(9, row, format!("{:>6.1} rows", shown[1]), Style::new());
                }
            })
            .expect("written");
            written.get()
        };
        assert!(bytes([12.5, 3.0]) > 1_000, "the first drawing is whole");
        assert!((1..200).contains(&bytes([87.9, 3.0])), "all digits of a styled number");
        assert!((1..200).contains(&bytes([87.9, 100.0])), "a plain one that grows");
        assert!(bytes([87.9, 100.0]) < 50, "nothing changed");
    }
}
