//! Dockerfiles, as far as ours leaves: instructions with their arguments, continued lines, comments.

use super::text;

/// One instruction.
#[derive(Debug)]
pub struct Instruction {
    pub name: String,
    pub arguments: String,
}

/// A whole file.
pub struct Dockerfile(pub Vec<Instruction>);

impl Dockerfile {
    pub fn read(name: &str) -> Self {
        let (mut instructions, mut open) = (Vec::new(), String::new());
        for line in text(name).lines().filter(|line| !line.trim_start().starts_with('#')) {
            match line.strip_suffix('\\') {
                Some(begun) => open.push_str(begun),
                None => {
                    open.push_str(line);
                    let whole = std::mem::take(&mut open);
                    let Some((name, arguments)) = whole.trim().split_once(char::is_whitespace) else {
                        continue;
                    };
                    instructions
                        .push(Instruction { name: name.to_owned(), arguments: arguments.trim().to_owned() });
                }
            }
        }
        Self(instructions)
    }

    /// The arguments of each instruction of this name.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.0.iter().filter(move |is| is.name == name).map(|is| is.arguments.as_str())
    }

    /// The arguments of the last instruction of this name, which is the one that counts.
    pub fn last(&self, name: &str) -> &str {
        self.all(name).last().unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// A variable of the image.
    pub fn env(&self, name: &str) -> &str {
        let settings = self.all("ENV").flat_map(str::split_whitespace);
        let found = settings.filter_map(|setting| setting.split_once('=')).find(|(key, _)| *key == name);
        found.unwrap_or_else(|| panic!("there is no ENV {name}")).1
    }

    /// The names of the variables of the image.
    pub fn env_names(&self) -> Vec<&str> {
        let settings = self.all("ENV").flat_map(str::split_whitespace);
        settings.filter_map(|setting| setting.split_once('=')).map(|(key, _)| key).collect()
    }
}

/// The words of an instruction in its JSON form.
pub fn list(arguments: &str) -> Vec<String> {
    serde_json::from_str(arguments)
        .unwrap_or_else(|error| panic!("{arguments}: not a list of words: {error}"))
}

/// What a COPY takes and where it puts it: flags, sources, target.
pub struct Copy<'a> {
    pub flags: Vec<&'a str>,
    pub sources: Vec<&'a str>,
    pub target: &'a str,
}

impl<'a> Copy<'a> {
    pub fn of(arguments: &'a str) -> Self {
        let (flags, mut sources): (Vec<_>, Vec<_>) =
            arguments.split_whitespace().partition(|word| word.starts_with("--"));
        let target = sources.pop().expect("a COPY has a target");
        Self { flags, sources, target }
    }

    /// Whether it takes from the build and not from the repository.
    pub fn is_from_a_stage(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("--from="))
    }
}
