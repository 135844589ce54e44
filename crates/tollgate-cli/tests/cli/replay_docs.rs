//! Tests that docs/replay.md shows the actual output of its commands, and the page that one of them
//! writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command from the page in the repository's root, and returns its output.
fn printed(command: &str) -> String {
    let words = command.split_whitespace().skip(1);
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate")).current_dir(root()).args(words).output();
    let output = output.expect("the program was built");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

fn section() -> String {
    let page = fs::read_to_string(root().join("docs/replay.md")).expect("the page is there");
    let section = page.split("\n## ").find(|section| section.starts_with("From a log to a limit"));
    section.expect("the section is there").to_owned()
}

/// Returns each command in the section, with the text below it.
fn commands(section: &str) -> Vec<(&str, &str)> {
    let blocks = section.split("```sh\n").skip(1);
    let command = |block| {
        let (command, rest) = str::split_once(block, "\n```").expect("a block ends");
        let text = rest.strip_prefix("\n\n```text\n").and_then(|text| text.split("\n```").next());
        (command, text.unwrap_or_default())
    };
    blocks.map(command).collect()
}

#[test]
fn the_page_shows_what_its_commands_print() {
    let section = section();
    let commands = commands(&section);
    assert_eq!(commands.len(), 3);
    for (command, text) in &commands[..2] {
        let printed = printed(command);
        // The page may omit lines of the output, but must not change any.
        let mut rest = printed.lines();
        for line in text.lines().filter(|line| !line.is_empty()) {
            assert!(
                rest.any(|printed| printed == line),
                "`{command}` does not print (in this order): {line}"
            );
        }
    }
}

/// `TOLLGATE_REPORT=write` writes docs/report.html. `make browser` makes its picture.
#[cfg(feature = "html")]
#[test]
fn the_report_of_the_page_is_the_one_that_its_command_makes() {
    let section = section();
    let (command, _) = commands(&section)[2];
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs_report.html");
    let made = made.to_str().expect("UTF-8");
    printed(&command.replace("report.html", made));
    let page = fs::read_to_string(made).expect("it was written").replace(made, "report.html");
    let kept = root().join("docs/report.html");
    if std::env::var_os("TOLLGATE_REPORT").is_some_and(|value| value == "write") {
        fs::write(&kept, &page).expect("it can be written");
    }
    let kept = fs::read_to_string(kept).expect("docs/report.html is there");
    assert!(kept == page, "docs/report.html is stale: TOLLGATE_REPORT=write writes it, then make browser");
}
