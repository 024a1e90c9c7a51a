//! `angarium docs`: the pages of `docs/reference`, which are made of the program, on standard output. A test holds the
//! files fresh.

mod commands;
mod errors;
mod limits;
mod settings;

use std::io::Write;

use clap::{Args, Command, ValueEnum};

/// Which page to print.
#[derive(Args, Debug)]
pub(super) struct DocsArgs {
    /// The page
    page: Page,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    Settings,
    Limits,
    Errors,
    Commands,
}

/// Prints a page about `program`.
pub(super) fn run(args: &DocsArgs, program: Command) -> anyhow::Result<()> {
    let page = match args.page {
        Page::Settings => settings::page(&program),
        Page::Limits => limits::page(),
        Page::Errors => errors::page(),
        Page::Commands => commands::page(program),
    };
    std::io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

/// The head of a page: its title, and how it is made.
fn head(title: &str, page: &str) -> String {
    let refresh = format!("angarium docs {page} > docs/reference/{page}.md");
    format!("# {title}\n\n<!-- Made by the program. Refresh it: {refresh} -->\n\n")
}

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// A row of a table.
fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table.
fn table(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    format!("{}|{}\n", row(&names), "---|".repeat(names.len()))
}
