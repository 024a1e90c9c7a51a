//! `angarium docs`: prints the pages of `docs/reference`, which are generated from the program. A test keeps the files
//! up to date.

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

/// Returns the head of a page: its title, and the command that generates it.
fn head(title: &str, page: &str) -> String {
    let refresh = format!("angarium docs {page} > docs/reference/{page}.md");
    format!("# {title}\n\n<!-- Made by the program. Refresh it: {refresh} -->\n\n")
}

/// Returns a text as a table cell.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

/// Returns a table row.
fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the head of a table.
fn table(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    format!("{}|{}\n", row(&names), "---|".repeat(names.len()))
}
