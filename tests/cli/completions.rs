//! `angarium completions`: scripts that shells take.

use std::process::Command;

use super::Program;

#[test]
fn bash_completes_commands_and_flags() {
    let program = Program::new(None);
    let script = program.home.path().join("angarium.bash");
    std::fs::write(&script, program.say(&["completions", "bash"])).unwrap();
    let complete = |words: &str| {
        let run = format!(
            "source {}; COMP_WORDS=(angarium {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _angarium angarium \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let ended = Command::new("bash").args(["-c", &run]).output().expect("bash is there");
        String::from_utf8(ended.stdout).unwrap()
    };
    assert_eq!(complete("mess").trim(), "message");
    assert_eq!(complete("queue li").trim(), "list");
    assert!(complete("queue list --").contains("--marker"));
}

#[test]
fn zsh_and_fish_have_scripts_too() {
    let program = Program::new(None);
    assert!(program.say(&["completions", "zsh"]).starts_with("#compdef angarium"));
    assert!(program.say(&["completions", "fish"]).contains("complete -c angarium"));
}
