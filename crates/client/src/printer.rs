//! Results on standard output: a table for people, JSON or plain lines for programs.
//!
//! Foreign text never controls a terminal, in any format; without a terminal, programs get it unchanged. Colours are
//! used only on terminals, and not if `NO_COLOR` is set. A closed output is no error, but stops a command that depends
//! on it. This module never writes to standard error.

use std::io::{BufWriter, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;

use super::failure::Failure;
use super::screen;
use super::table::Table;

/// How a result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Aligned columns, for people; not to be parsed
    Table,
    /// The server's JSON as it came; lists as one array
    Json,
    /// Bare values, one a line: names, ids, bodies
    Plain,
}

/// A result in all formats.
#[derive(Debug, Default)]
pub struct Display {
    /// Text for people, with line ends.
    pub people: String,
    /// One JSON document.
    pub json: String,
    /// Bare values, without line ends.
    pub plain: Vec<String>,
}

/// The printer of results.
pub struct Printer {
    form: Form,
    is_terminal: bool,
    has_colours: bool,
    out: BufWriter<StdoutLock<'static>>,
}

impl Printer {
    /// Creates a printer that locks standard output.
    pub fn new(form: Form) -> Self {
        let out = std::io::stdout().lock();
        let has_colours = AutoStream::choice(&out) != ColorChoice::Never;
        Self { form, is_terminal: screen::is_terminal(), has_colours, out: BufWriter::new(out) }
    }

    /// Returns the output format.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Prints a result, and returns when it has left the process.
    pub fn show(&mut self, shown: &Display) -> Result<(), Failure> {
        match self.form {
            Form::Table => self.people(&shown.people)?,
            Form::Json => {
                self.json(&shown.json)?;
                self.write("\n")?;
            }
            Form::Plain => shown.plain.iter().try_for_each(|line| self.plain(line))?,
        }
        self.flush()
    }

    /// Prints a completed action: a sentence for people, and its JSON.
    pub fn done(&mut self, sentence: &str, json: &serde_json::Value) -> Result<(), Failure> {
        self.show(&Display { people: format!("{sentence}\n"), json: json.to_string(), plain: Vec::new() })
    }

    /// Starts a list whose items are added page by page.
    pub fn list(&mut self, heads: &'static [&'static str]) -> List<'_> {
        List { printer: self, table: Table::new(heads), items: 0 }
    }

    /// Starts a list like [`Printer::list`]. Cells of the last column are cut at the edge of the terminal.
    pub fn cut_list(&mut self, heads: &'static [&'static str]) -> List<'_> {
        List { printer: self, table: Table::new(heads).cut(), items: 0 }
    }

    /// Prints text that may have colours.
    fn people(&mut self, text: &str) -> Result<(), Failure> {
        if self.has_colours {
            return self.write(text);
        }
        self.write(&anstream::adapter::strip_str(text).to_string())
    }

    fn plain(&mut self, line: &str) -> Result<(), Failure> {
        if self.is_terminal {
            self.write(&screen::lines(line))?
        } else {
            self.write(line)?
        }
        self.write("\n")
    }

    fn json(&mut self, text: &str) -> Result<(), Failure> {
        if self.is_terminal { self.write(&screen::json(text)) } else { self.write(text) }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).map_err(|error| Failure::of_output(&error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::of_output(&error))
    }
}

/// A list that is being printed.
pub struct List<'a> {
    printer: &'a mut Printer,
    table: Table,
    items: u64,
}

/// One list item in all formats.
pub struct Item {
    /// Cells of its table row.
    pub row: Vec<String>,
    /// JSON text.
    pub json: String,
    /// Plain line.
    pub plain: String,
}

impl List<'_> {
    /// Prints a page.
    pub fn page(&mut self, items: Vec<Item>) -> Result<(), Failure> {
        match self.printer.form {
            _ if items.is_empty() => return Ok(()),
            Form::Table => {
                let fresh = self.items == 0;
                let rows: Vec<_> = items.iter().map(|item| item.row.clone()).collect();
                let text = if fresh { self.table.with_head(&rows) } else { self.table.rows(&rows) };
                self.printer.people(&text)?;
            }
            Form::Json => {
                for (index, item) in (self.items..).zip(&items) {
                    self.printer.write(if index == 0 { "[" } else { ",\n " })?;
                    self.printer.json(&item.json)?;
                }
            }
            Form::Plain => items.iter().try_for_each(|item| self.printer.plain(&item.plain))?,
        }
        self.items += items.len() as u64;
        self.printer.flush()
    }

    /// Returns whether no item was printed so far.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Ends the list. An empty table prints `nothing`.
    pub fn end(self, nothing: &str) -> Result<(), Failure> {
        match (self.printer.form, self.items) {
            (Form::Table, 0) => self.printer.write(&format!("{nothing}\n"))?,
            (Form::Json, 0) => self.printer.write("[]\n")?,
            (Form::Json, _) => self.printer.write("]\n")?,
            (Form::Table | Form::Plain, _) => {}
        }
        self.printer.flush()
    }
}
