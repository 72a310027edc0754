//! Writes native/wire/src/gen.rs from proto/. Run by `./dsec gen`, and its result is committed.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let proto = root.join("proto");
    let files = ["aether", "hostd"].map(|name| proto.join(format!("dsec/v1/{name}.proto")));
    let set = protox::compile(files, [&proto]).expect("proto/ compiles");
    let out = root.join("native/wire/src");
    prost_build::Config::new()
        .out_dir(&out)
        .btree_map(["."])
        .compile_fds(set)
        .expect("Rust is generated");
    std::fs::rename(out.join("dsec.v1.rs"), out.join("gen.rs")).expect("gen.rs is put in place");
}
