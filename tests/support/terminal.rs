//! A terminal of a size for a program that is started on it: what it draws, and keys for it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than a program takes to draw something, on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A program on a terminal. It ends with its value.
pub struct Terminal {
    child: Child,
    keys: File,
    drawn: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts a program whose standard streams are a terminal of so many columns and lines.
    pub fn start(mut command: Command, (columns, lines): (u16, u16)) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("it has a size");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it can be opened");
        let stream = || Stdio::from(theirs.try_clone().expect("descriptors are left"));
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().expect("it starts");
        drop((command, theirs));
        let mut reader = File::from(ours.try_clone().expect("descriptors are left"));
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&drawn);
        std::thread::spawn(move || {
            let mut some = [0; 4_096];
            // It fails when the program has closed its side.
            while let Ok(read @ 1..) = reader.read(&mut some) {
                kept.lock().extend_from_slice(&some[..read]);
            }
        });
        Self { child, keys: File::from(ours), drawn }
    }

    /// All that was drawn so far, with its escapes.
    pub fn drawn(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock()).into_owned()
    }

    /// Waits until something is drawn. Panics when it does not come.
    pub fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.drawn().contains(text) {
            assert!(start.elapsed() < MAX_WAIT, "{text:?} is not drawn: {:?}", self.drawn());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// Waits for the end of the program: its exit code, and all that it has drawn.
    pub fn end(mut self) -> (i32, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                // What it drew last may still be read.
                std::thread::sleep(Duration::from_millis(200));
                return (status.code().expect("it ended by itself"), self.drawn());
            }
            assert!(start.elapsed() < MAX_WAIT, "it does not end: {:?}", self.drawn());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
