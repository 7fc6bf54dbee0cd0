//! `hushnet-bindgen MODULE.wasm FOLDER`: the module for pages, with its JavaScript and its types, and `relaxed.js`: where its instructions of relaxed
//! SIMD are. With `HUSHNET_NAMES` in the environment, functions keep their names, for profilers.

use std::path::Path;
use std::process::ExitCode;
use wasm_bindgen_cli_support::Bindgen;
use wasmparser::{Operator, Parser, Payload};

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
    match done.map_err(|e| format!("{e:#}")).and_then(|()| tell_places(Path::new(folder), module)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{module}: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Writes `relaxed.js` and its types beside the module.
fn tell_places(folder: &Path, module: &str) -> Result<(), String> {
    let stem = Path::new(module).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let bytes = std::fs::read(folder.join(format!("{stem}_bg.wasm"))).map_err(|e| e.to_string())?;
    let places = relaxed(&bytes)?;
    let mut last = 0;
    let steps: Vec<String> =
        places.iter().map(|at| (at - std::mem::replace(&mut last, *at)).to_string()).collect();
    let text = format!(
        "// Bytes from one instruction of relaxed SIMD to the next.\nexport const steps = [{}];\n",
        steps.join(",")
    );
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).map_err(|e| e.to_string());
    write("relaxed.js", &text)?;
    write("relaxed.d.ts", "export const steps: number[];\n")
}

/// Places of the two fused steps that the kernels use: each is three bytes there. Others of relaxed SIMD are an error.
fn relaxed(bytes: &[u8]) -> Result<Vec<usize>, String> {
    let mut places = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::CodeSectionEntry(body) = payload.map_err(|e| e.to_string())? else { continue };
        let mut operators = body.get_operators_reader().map_err(|e| e.to_string())?;
        while !operators.eof() {
            let (operator, at) = operators.read_with_offset().map_err(|e| e.to_string())?;
            match operator {
                Operator::F64x2RelaxedMadd | Operator::F64x2RelaxedNmadd => {
                    let code = bytes.get(at..at + 3).ok_or("the module ends in an instruction")?;
                    if !matches!(code, [0xfd, 0x87 | 0x88, 0x02]) {
                        return Err(format!("an instruction of relaxed SIMD is encoded as {code:?}"));
                    }
                    places.push(at);
                }
                other if format!("{other:?}").contains("Relaxed") => {
                    return Err(format!(
                        "{other:?} at {at}: nothing stands for it where there is no relaxed SIMD"
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(places)
}
