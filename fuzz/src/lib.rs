//! Fuzz targets of everything that a peer or a file may hold. `fuzz/README.md` says how they are run and what they found.
//!
//! A target is a [`Target`]: its seeds, from which the corpus is written, and what is done with an input. The programs in
//! `fuzz_targets/` hand it to libFuzzer.

pub mod edits;
pub mod frames;
pub mod memory;
pub mod nets;
pub mod plans;
pub mod targets;

/// A fuzz target.
pub struct Target {
    /// Inputs that reach far, named.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
    /// Reads an input; panics where the code under test does what it must not.
    pub run: fn(&[u8]),
    /// Bytes that `run` may hold.
    pub memory: usize,
}

impl Target {
    /// Prepares a target: parallel loops run on this thread, and with `HUSHNET_FUZZ_SEEDS` set to a folder the seeds are written there
    /// and the program ends.
    ///
    /// # Panics
    /// When the folder cannot be written or a seed is refused.
    pub fn start(&self) {
        rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .use_current_thread()
            .build_global()
            .expect("the first pool of this process");
        if let Some(folder) = std::env::var_os("HUSHNET_FUZZ_SEEDS") {
            let folder = std::path::PathBuf::from(folder);
            std::fs::create_dir_all(&folder).expect("the folder of the corpus can be made");
            for (name, seed) in (self.seeds)() {
                std::fs::write(folder.join(name), seed).expect("the corpus can be written");
            }
            std::process::exit(0);
        }
        // What is prepared once is not the input's.
        (self.run)(&[]);
    }

    /// Runs an input within the target's memory.
    pub fn check(&self, data: &[u8]) {
        memory::within(self.memory, || (self.run)(data));
    }
}

/// Seeds that are scripts, numbered.
pub fn numbered(seeds: impl IntoIterator<Item = Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    seeds.into_iter().enumerate().map(|(i, s)| (format!("script-{i:03}"), s)).collect()
}
