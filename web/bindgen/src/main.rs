//! `hushnet-bindgen MODULE.wasm FOLDER`: the module for pages, with its JavaScript and its types. With `HUSHNET_NAMES` in the environment,
//! functions keep their names, for profilers.

use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, folder] = arguments.as_slice() else {
        eprintln!("hushnet-bindgen MODULE.wasm FOLDER");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    let nameless = std::env::var_os("HUSHNET_NAMES").is_none();
    let done = bindgen.input_path(module).web(true).and_then(|b| {
        b.typescript(true).remove_name_section(nameless).remove_producers_section(true).generate(folder)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{module}: {e:#}");
            ExitCode::FAILURE
        }
    }
}
