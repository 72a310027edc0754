use crate::support::*;

#[test]
fn a_command_gives_its_output_and_code() {
    let sandbox = Sandbox::new(&[]);
    let ran = sandbox.sh("echo out; echo err >&2; exit 5");
    assert_eq!((ran.text().as_str(), ran.errors().as_str(), ran.code()), ("out\n", "err\n", 5));
    let ran = sandbox.run(argv(&["/bin/true"]));
    assert_eq!(ran.code(), 0);
}
