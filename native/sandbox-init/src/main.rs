//! Pid 1 of a sandbox that an OCI runtime has made. hostd hands it in by descriptor; it is built with
//! `cargo rustc -p sandbox-init -- -C target-feature=+crt-static`.

fn main() {
    hostd::runc::run_inside();
}
