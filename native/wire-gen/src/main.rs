//! Writes native/wire/src/gen.rs from proto/. Run by `./dsec gen`, and its result is committed.

use std::path::Path;

use sha2::{Digest, Sha256};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let proto = root.join("proto");
    let files = ["aether", "hostd"].map(|name| proto.join(format!("dsec/v1/{name}.proto")));
    let set = protox::compile(files, [&proto]).expect("proto/ compiles");
    let mut sources: Vec<String> = set
        .file
        .iter()
        .map(|file| file.name().to_string())
        .collect();
    sources.sort();
    let out = root.join("native/wire/src");
    prost_build::Config::new()
        .out_dir(&out)
        .btree_map(["."])
        .compile_fds(set)
        .expect("Rust is generated");
    let made = out.join("dsec.v1.rs");
    let code = std::fs::read_to_string(&made).expect("the generated file is there");
    // A test compares this line with the sources, so that a forgotten run shows.
    let first = format!(
        "// SHA-256 {} of {}\n",
        digest(&proto, &sources),
        sources.join(" ")
    );
    std::fs::write(&made, first + &code).expect("the generated file is written");
    std::fs::rename(made, out.join("gen.rs")).expect("gen.rs is put in place");
}

/// Over name, NUL, contents, NUL of each source, in order of their names.
fn digest(proto: &Path, sources: &[String]) -> String {
    let mut hash = Sha256::new();
    for name in sources {
        hash.update(name);
        hash.update([0]);
        hash.update(std::fs::read(proto.join(name)).expect("a source is read"));
        hash.update([0]);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
