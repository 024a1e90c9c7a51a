//! Owns the checks of the power switch: a child process makes random writes through the standard library,
//! dies, and after the power cut the directory must be what a naive model states. The child is this same
//! test program, started again with the shim. It never needs the server.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Signal, getpid, kill_process};

use super::powercut::PowerCut;
use super::rollback::Survival;
use angarium_testbed::settings;

const CHILD: &str = "faults::rollback_test::child_writes_as_the_dice_say";
const STEPS: usize = 120;
const RUNS: u64 = 8;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One call of the standard library. Every path a Rust program takes to a file is here.
#[derive(Clone, Debug)]
enum Step {
    Write(&'static str, u64, Vec<u8>),
    WriteAt(&'static str, u64, Vec<u8>),
    WriteVectored(&'static str, Vec<u8>, Vec<u8>),
    Append(&'static str, Vec<u8>),
    Resize(&'static str, u64),
    Empty(&'static str),
    Copy(&'static str, &'static str),
    SyncData(&'static str),
    SyncAll(&'static str),
    Rename(&'static str, &'static str),
    Remove(&'static str),
}

fn script(seed: u64) -> Vec<Step> {
    let mut dice = StdRng::seed_from_u64(seed);
    (0..STEPS).map(|_| step(&mut dice)).collect()
}

fn step(dice: &mut StdRng) -> Step {
    let (a, b) = (NAMES[dice.random_range(0..4)], NAMES[dice.random_range(0..4)]);
    let at = dice.random_range(0..40);
    let mut bytes = || (0..dice.random_range(1..20)).map(|_| dice.random_range(1..=255)).collect::<Vec<u8>>();
    let (first, second) = (bytes(), bytes());
    match dice.random_range(0..20) {
        0..3 => Step::Write(a, at, first),
        3..6 => Step::WriteAt(a, at, first),
        6..8 => Step::WriteVectored(a, first, second),
        8..11 => Step::Append(a, first),
        11 => Step::Resize(a, at),
        12 => Step::Empty(a),
        13 => Step::Copy(a, b),
        14..16 => Step::SyncData(a),
        16 => Step::SyncAll(a),
        17..19 => Step::Rename(a, b),
        _ => Step::Remove(a),
    }
}

impl Step {
    /// Does it to the directory. Steps on files that are not there do nothing.
    fn run(&self, dir: &Path) -> std::io::Result<()> {
        let open =
            |name: &str| OpenOptions::new().write(true).create(true).truncate(false).open(dir.join(name));
        match self {
            Self::Write(name, at, bytes) => {
                let mut file = open(name)?;
                file.seek(SeekFrom::Start(*at))?;
                file.write_all(bytes)
            }
            Self::WriteAt(name, at, bytes) => open(name)?.write_all_at(bytes, *at),
            Self::WriteVectored(name, a, b) => {
                open(name)?.write_vectored(&[IoSlice::new(a), IoSlice::new(b)]).map(drop)
            }
            Self::Append(name, bytes) => {
                OpenOptions::new().append(true).create(true).open(dir.join(name))?.write_all(bytes)
            }
            Self::Resize(name, size) => open(name)?.set_len(*size),
            Self::Empty(name) => File::create(dir.join(name)).map(drop),
            Self::Copy(from, to) if from == to => Ok(()),
            Self::Copy(from, to) => std::io::copy(&mut File::open(dir.join(from))?, &mut open(to)?).map(drop),
            Self::SyncData(name) => File::open(dir.join(name))?.sync_data(),
            Self::SyncAll(name) => File::open(dir.join(name))?.sync_all(),
            Self::Rename(from, to) => fs::rename(dir.join(from), dir.join(to)),
            Self::Remove(name) => fs::remove_file(dir.join(name)),
        }
    }
}

/// A file of the model: its states since its last sync, oldest first. The first one is durable.
type States = Vec<Vec<u8>>;

#[derive(Default)]
struct Model(BTreeMap<&'static str, States>);

impl Model {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Write(name, at, bytes) | Step::WriteAt(name, at, bytes) => self.write(name, *at, bytes),
            Step::WriteVectored(name, a, b) => self.write(name, 0, &[a.as_slice(), b].concat()),
            Step::Append(name, bytes) => self.write(name, self.now(name).len() as u64, bytes),
            Step::Resize(name, size) => self.resize(name, usize::try_from(*size).unwrap_or_default()),
            Step::Empty(name) => self.resize(name, 0),
            Step::Copy(from, to) if from != to && self.0.contains_key(from) => {
                let bytes = self.now(from);
                self.write(to, 0, &bytes);
            }
            Step::Copy(..) => {}
            Step::SyncData(name) | Step::SyncAll(name) => {
                let states = self.0.get_mut(name).into_iter();
                states.for_each(|states| drop(states.drain(..states.len() - 1)));
            }
            Step::Rename(from, to) => {
                if let Some(states) = self.0.remove(from) {
                    self.0.insert(to, states);
                }
            }
            Step::Remove(name) => drop(self.0.remove(name)),
        }
    }

    fn now(&self, name: &str) -> Vec<u8> {
        self.0.get(name).and_then(|states| states.last()).cloned().unwrap_or_default()
    }

    fn write(&mut self, name: &'static str, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap_or_default();
        let mut state = self.now(name);
        if !bytes.is_empty() {
            state.resize(state.len().max(at + bytes.len()), 0);
            state[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.add(name, state);
    }

    fn resize(&mut self, name: &'static str, size: usize) {
        let mut state = self.now(name);
        state.resize(size, 0);
        self.add(name, state);
    }

    /// A new file is there at once, and empty.
    fn add(&mut self, name: &'static str, state: Vec<u8>) {
        self.0.entry(name).or_insert_with(|| vec![Vec::new()]).push(state);
    }
}

fn directory(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let present = NAMES.iter().filter(|name| dir.join(name).exists());
    present.map(|name| ((*name).to_owned(), fs::read(dir.join(name)).expect("it is there"))).collect()
}

/// Runs the script of this seed in a child under the switch, which ends by SIGKILL.
fn run_child(cut: &PowerCut, seed: u64) -> Model {
    let ended = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", CHILD, "--nocapture"])
        .envs(cut.env())
        .env("ROLLBACK_SEED", seed.to_string())
        .output()
        .expect("this program can be started");
    assert!(ended.status.code().is_none(), "the child was to be killed: {ended:?}");
    let mut model = Model::default();
    script(seed).iter().for_each(|step| model.apply(step));
    model
}

/// The child's side. In the test program proper there is no seed, and nothing to do.
#[test]
fn child_writes_as_the_dice_say() {
    let seed = settings::number("ROLLBACK_SEED", 0);
    let Some(dir) = std::env::var_os("POWERCUT_DIR").filter(|_| seed != 0) else { return };
    for step in script(seed) {
        // Steps on missing files fail, here as in the model.
        let _ = step.run(Path::new(&dir));
    }
    kill_process(getpid(), Signal::KILL).unwrap();
}

#[test]
fn power_cut_leaves_exactly_synced_data() {
    let seed = settings::seed("rollback") >> 8;
    for seed in seed + 1..=seed + RUNS {
        let cut = PowerCut::new();
        let model = run_child(&cut, seed);
        cut.strike(Survival::Nothing, &mut StdRng::seed_from_u64(seed));
        let durable = model.0.iter().map(|(name, states)| ((*name).to_owned(), states[0].clone()));
        assert_eq!(directory(&cut.data()), durable.collect(), "seed {seed}: {:?}", script(seed));
    }
}

#[test]
fn surviving_writes_are_a_prefix_with_a_torn_end() {
    let seed = settings::seed("rollback") >> 8;
    let (mut torn, last) = (0, seed + RUNS);
    // A few runs have no torn write by chance.
    for seed in seed + 1..=seed + 8 * RUNS {
        if torn > 0 && seed > last {
            break;
        }
        let (cut, mut dice) = (PowerCut::new(), StdRng::seed_from_u64(seed));
        let model = run_child(&cut, seed);
        let survival = if seed % 2 == 0 { Survival::Prefix } else { Survival::PrefixOfEachFile };
        torn += cut.strike(survival, &mut dice).torn;
        for (name, bytes) in directory(&cut.data()) {
            let states = &model.0[name.as_str()];
            let whole = states.contains(&bytes);
            let part = || states.windows(2).any(|pair| is_between(&bytes, &pair[0], &pair[1]));
            assert!(whole || part(), "seed {seed}: {name} is {bytes:?}, not of {states:?}");
        }
    }
    assert!(torn > 0, "no write was torn in {} runs", 8 * RUNS);
}

/// New up to some byte, old from there on.
fn is_between(bytes: &[u8], old: &[u8], new: &[u8]) -> bool {
    (0..=new.len()).any(|cut| {
        let mut mix = new[..cut].to_vec();
        mix.extend_from_slice(old.get(cut..).unwrap_or_default());
        mix == bytes
    })
}
