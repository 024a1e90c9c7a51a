//! The terminal while `top` draws on it: its alternate screen and single key presses. It is restored on drop.

use std::io::{self, Stdout, Write, stdout};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};

use super::signals::Signals;
use crate::failure::Failure;
use crate::screen;

/// Size of a terminal that does not report it.
const SIZE: (u16, u16) = (80, 24);

/// Pause between two checks for signals and for the requested page.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

/// The next event of the drawing loop.
pub enum Next {
    /// The user quits.
    End,
    /// A signal ends the program, with its number.
    Signal(i32),
    /// The screen was resized: draw again.
    Draw,
    /// The user wants a new page now.
    Refresh,
    /// The condition of the wait is true.
    Due,
}

/// A terminal in drawing mode.
pub struct LiveScreen {
    signals: Signals,
    out: Stdout,
    has_colours: bool,
}

impl LiveScreen {
    /// Switches the terminal to drawing mode.
    pub fn begin() -> Result<Self, Failure> {
        let none = |error: io::Error| {
            Failure::Usage(format!("the terminal cannot be drawn on ({error}): use --once"))
        };
        let signals = Signals::take().map_err(none)?;
        enable_raw_mode().map_err(none)?;
        let has_colours = AutoStream::choice(&stdout()) != ColorChoice::Never;
        let mut live = Self { signals, out: stdout(), has_colours };
        execute!(live.out, EnterAlternateScreen, DisableLineWrap, cursor::Hide).map_err(none)?;
        Ok(live)
    }

    /// Draws the text that `page` returns for this number of columns and lines, over the last text.
    pub fn draw(&mut self, page: impl FnOnce((u16, u16)) -> String) -> Result<(), Failure> {
        let size = screen::size().unwrap_or(SIZE);
        let page = page(size);
        let page = if self.has_colours { page } else { anstream::adapter::strip_str(&page).to_string() };
        let mut draw = || -> io::Result<()> {
            queue!(self.out, cursor::MoveTo(0, 0))?;
            for (number, line) in page.lines().take(usize::from(size.1)).enumerate() {
                if number > 0 {
                    self.out.write_all(b"\r\n")?;
                }
                self.out.write_all(line.as_bytes())?;
                queue!(self.out, Clear(ClearType::UntilNewLine))?;
            }
            queue!(self.out, Clear(ClearType::FromCursorDown))?;
            self.out.flush()
        };
        draw().map_err(|error| Failure::of_output(&error))
    }

    /// Waits for a key with a meaning, a resize, a signal, or until `is_due`. A page request in progress does not block
    /// it.
    pub fn wait(&mut self, is_due: impl Fn() -> bool) -> Result<Next, Failure> {
        let lost = |error: io::Error| Failure::Usage(format!("the terminal is gone: {error}"));
        loop {
            if let Some(signal) = self.signals.get() {
                return Ok(Next::Signal(signal));
            }
            if is_due() {
                return Ok(Next::Due);
            }
            if !event::poll(CHECK_PAUSE).map_err(lost)? {
                continue;
            }
            match event::read().map_err(lost)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if let Some(next) = action_of(key) {
                        return Ok(next);
                    }
                }
                Event::Resize(..) => return Ok(Next::Draw),
                _ => {}
            }
        }
    }
}

fn action_of(key: KeyEvent) -> Option<Next> {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Next::End),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Next::End),
        KeyCode::Char(' ') | KeyCode::Enter => Some(Next::Refresh),
        _ => None,
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        // Errors are ignored: without a terminal there is no user to inform.
        let _ = execute!(self.out, EnableLineWrap, cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
