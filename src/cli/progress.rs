//! Progress bars on standard error, when it is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far long work is. Says nothing when standard error is no terminal.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work over a known number of bytes.
    pub fn bytes(what: &str, total: u64) -> Self {
        let style = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        Self::new(what, Some(total), style)
    }

    /// Work in a known number of steps.
    pub fn steps(what: &str, total: u64) -> Self {
        Self::new(what, Some(total), "{msg} {wide_bar} {human_pos}/{human_len} {eta}")
    }

    /// Work of unknown length.
    pub fn waiting(what: &str) -> Self {
        let progress = Self::new(what, None, "{spinner} {msg} {elapsed}");
        if !progress.bar.is_hidden() {
            progress.bar.enable_steady_tick(Duration::from_millis(120));
        }
        progress
    }

    fn new(what: &str, total: Option<u64>, template: &str) -> Self {
        let shown = std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(super::human::safe(what));
        Self { bar }
    }

    /// So much is done, of all.
    pub fn at(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// So much is done of so much: the whole is known only now.
    pub fn of(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// What is done now.
    pub fn say(&self, what: &str) {
        self.bar.set_message(super::human::safe(what));
    }

    /// A line above the bar; to standard error when there is no bar.
    pub fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("{}", super::human::safe(text));
        } else {
            self.bar.println(super::human::safe(text));
        }
    }

    /// Done: the bar goes away.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
