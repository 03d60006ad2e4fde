//! A terminal with a user in front: a program in a pseudo-terminal, its screen, and keys.

use std::{
    io::{Read, Write},
    num::NonZeroU16,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtyPair, PtySize, native_pty_system};
use vt100::Parser;

const ROWS: NonZeroU16 = NonZeroU16::new(40).expect("it is not 0");
const COLUMNS: NonZeroU16 = NonZeroU16::new(120).expect("it is not 0");
/// Longer than any wait that ends well, on a machine that is busy with other tests too.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Terminal {
    pty: PtyPair,
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    parser: Arc<Mutex<Parser>>,
    reader: JoinHandle<()>,
    /// How the terminal was before the program.
    settings: String,
}

/// The screen after a program's end.
pub(crate) struct Ended {
    pub(crate) code: u32,
    /// The text on the screen.
    pub(crate) screen: String,
}

impl Terminal {
    /// Runs the program in a new terminal.
    pub(crate) fn run(options: &[&str], folder: &Path) -> Self {
        let size = PtySize {
            rows: ROWS.get(),
            cols: COLUMNS.get(),
            ..PtySize::default()
        };
        let pty = native_pty_system()
            .openpty(size)
            .expect("there are pseudo-terminals");
        let settings = settings(&*pty.master);
        let mut command = CommandBuilder::new(super::PROGRAM);
        command.args(options);
        command.cwd(folder);
        command.env("TERM", "xterm-256color");
        let child = pty
            .slave
            .spawn_command(command)
            .expect("the program starts");
        let mut output = pty.master.try_clone_reader().expect("it has an output");
        let keys = pty.master.take_writer().expect("it has an input");
        let parser = Arc::new(Mutex::new(Parser::new(ROWS, COLUMNS, 0)));
        let written = parser.clone();
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal is an error on Linux.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                lock(&written).process(&bytes[..count]);
            }
        });
        Self {
            pty,
            child,
            keys,
            parser,
            reader,
            settings,
        }
    }

    /// Waits until a program that fills the screen, and gets every key, shows all of `texts` at once.
    pub(crate) fn wait_for(&mut self, texts: &[&str]) {
        let began = Instant::now();
        loop {
            let (fills_the_screen, text) = {
                let parser = lock(&self.parser);
                let screen = parser.screen();
                (screen.alternate_screen(), screen.contents())
            };
            let gets_keys = settings(&*self.pty.master) != self.settings;
            if fills_the_screen && gets_keys && texts.iter().all(|wanted| text.contains(wanted)) {
                return;
            }
            let ended = self.child.try_wait().expect("a child can be waited for");
            let seen = format!("gets keys: {gets_keys}; {text}");
            assert!(ended.is_none(), "{ended:?} before {texts:?}: {seen}");
            assert!(began.elapsed() < PATIENCE, "no {texts:?}: {seen}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn press(&mut self, key: char) {
        write!(self.keys, "{key}").expect("a terminal takes keys");
    }

    /// Waits until the program ends, and asserts that the terminal is restored.
    pub(crate) fn end(mut self) -> Ended {
        let status = self.child.wait().expect("a child can be waited for");
        assert_eq!(settings(&*self.pty.master), self.settings, "{status:?}");
        drop(self.pty.slave);
        self.reader.join().expect("the screen can be read");
        let parser = lock(&self.parser);
        let screen = parser.screen();
        let text = screen.contents();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "{text}"
        );
        Ended {
            code: status.exit_code(),
            screen: text,
        }
    }
}

/// Echo, line editing and the like.
fn settings(terminal: &dyn MasterPty) -> String {
    let settings = terminal.get_termios().expect("a terminal has settings");
    format!("{settings:?}")
}

fn lock(parser: &Mutex<Parser>) -> MutexGuard<'_, Parser> {
    parser.lock().unwrap_or_else(PoisonError::into_inner)
}
