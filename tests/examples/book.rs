//! Each command of the README and of the book that starts an example or burn-mx-lab is accepted by the program.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::program::{LAB, program};

/// A command's words, with the page and without comments.
struct Line {
    page: String,
    words: Vec<String>,
}

/// The words of a command, in which single or double quotes hold a word together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![];
    let (mut word, mut quote) = (None::<String>, None);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(end)) if c == end => quote = None,
            (' ' | '\n', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Every command in the blocks `sh` of the README and of the chapters. An alias holds to the end of its page.
fn lines() -> Vec<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chapters = std::fs::read_dir(root.join("docs/src")).expect("there is a book");
    let chapters = chapters.map(|entry| entry.expect("it can be listed").path());
    let pages = chapters.chain([root.join("README.md")]);
    let mut lines = Vec::new();
    for page in pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")) {
        let text = std::fs::read_to_string(&page).expect("it can be read");
        let mut aliases = HashMap::new();
        for block in text.split("\n```sh\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            let block = block.replace("\\\n", " ").replace("$model", "cnn");
            let without_comments = block.lines().map(|line| match line.split_once(" #") {
                _ if line.starts_with('#') => "",
                Some((command, _)) => command,
                None => line,
            });
            for command in without_comments.flat_map(|line| line.split("&&")) {
                let command = command.trim();
                if let Some((name, meaning)) = command
                    .strip_prefix("alias ")
                    .and_then(|alias| alias.split_once('='))
                {
                    aliases.insert(name.to_owned(), words(meaning).concat());
                    continue;
                }
                let mut words = words(command);
                if let Some(meaning) = words.first().and_then(|first| aliases.get(first)) {
                    words.splice(0..1, self::words(meaning));
                }
                let page = page.display().to_string();
                lines.push(Line { page, words });
            }
        }
    }
    lines
}

/// The program that a command starts, an example or burn-mx-lab, and its options. `None` for any other command.
fn started(words: &[String]) -> Option<(&str, &[String])> {
    let after = |word: &str| {
        let at = words.iter().position(|it| it == word)? + 1;
        Some(&words[at..])
    };
    if words.first()? == LAB {
        return Some((LAB, &words[1..]));
    }
    let name = after("--example").or_else(|| after("--bin"))?;
    Some((&name[0], after("--").unwrap_or_default()))
}

#[test]
fn every_command_of_the_book_is_accepted() {
    let mut tried = [0, 0];
    for Line { page, words } in lines() {
        let Some((name, options)) = started(&words) else {
            continue;
        };
        // Features bring backends that these programs do not have.
        if words.iter().any(|word| word == "--features") {
            continue;
        }
        tried[usize::from(name == LAB)] += 1;
        // Asked for help, a program refuses an unknown option or value before it, and does no work.
        if options.is_empty() {
            continue;
        }
        let output = Command::new(program(name))
            .args(options)
            .arg("--help")
            .output()
            .expect("the program starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: {words:?}: {error}");
    }
    assert!(tried[0] > 3 && tried[1] > 40, "{tried:?}");
}
