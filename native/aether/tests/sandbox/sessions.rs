use wire::aether_request::Call;
use wire::*;

use crate::support::*;

struct Shell {
    sandbox: TestSandbox,
}

impl Shell {
    fn new() -> Shell {
        let sandbox = TestSandbox::new(&[]);
        sandbox.client().open_session("s").unwrap();
        Shell { sandbox }
    }
    fn spec(text: &str) -> CommandSpec {
        CommandSpec {
            session_id: "s".into(),
            ..sh(text)
        }
    }
    fn call(&self, text: &str) -> Ran {
        self.sandbox.run(Shell::spec(text))
    }
    /// Standard output and code.
    fn gives(&self, text: &str) -> (String, i32) {
        let ran = self.call(text);
        (ran.text(), ran.code())
    }
}

fn gives(out: &str, code: i32) -> (String, i32) {
    (out.to_string(), code)
}

#[test]
fn directory_variables_and_functions_stay() {
    let shell = Shell::new();
    assert_eq!(
        shell.gives("cd /tmp; x='a  b'; f() { echo \"f $1\"; }; shopt -s extglob; export E=1"),
        gives("", 0)
    );
    assert_eq!(
        shell.gives("pwd; echo \"$x\"; f 2; shopt -q extglob && echo on; sh -c 'echo $E'"),
        gives("/tmp\na  b\nf 2\non\n1\n", 0)
    );
    assert_eq!(shell.gives("declare -A m=([k]=v); (exit 7)"), gives("", 7));
    assert_eq!(shell.gives("echo ${m[k]}; false"), gives("v\n", 1));
    let ran = shell.call("echo to-out; echo to-err >&2; return 3");
    assert_eq!(
        (ran.text().as_str(), ran.errors().starts_with("to-err\n")),
        ("to-out\n", true)
    );
}

#[test]
fn multi_line_text_here_documents_and_broken_quotes() {
    let shell = Shell::new();
    assert_eq!(
        shell.gives("cat <<'END'\na 'b' \"c\" $HOME\nEND\nfor i in 1 2\ndo\necho $i\ndone"),
        gives("a 'b' \"c\" $HOME\n1\n2\n", 0)
    );
    let ran = shell.call("echo 'unbalanced");
    assert!(
        ran.code() != 0 && ran.errors().contains("unexpected EOF"),
        "{ran:?}"
    );
    assert!(!ran.outcome.session_restarted);
    assert_eq!(shell.call("if true; then").code(), 2);
    let ran = shell.call("echo 'it'\"'\"'s'; # comment");
    assert_eq!(
        (
            ran.text().as_str(),
            ran.code(),
            ran.outcome.session_restarted
        ),
        ("it's\n", 0, false)
    );
}

#[test]
fn a_shell_that_ends_is_replaced() {
    let shell = Shell::new();
    assert_eq!(shell.gives("x=1; exit 8"), gives("", 8));
    let ran = shell.call("echo x${x-}");
    assert_eq!(
        (
            ran.text().as_str(),
            ran.code(),
            ran.outcome.session_restarted
        ),
        ("x\n", 0, true)
    );
    assert!(!shell.call("true").outcome.session_restarted);
    assert_eq!(
        shell.gives("exec sh -c 'echo in; exit 6'"),
        gives("in\n", 6)
    );
    assert_eq!(shell.gives("set -e; false; echo no"), gives("", 1));
    assert_eq!(shell.gives("set -eu; true"), gives("", 0));
    assert_eq!(shell.gives("echo still"), gives("still\n", 0));
    assert_eq!(shell.call("kill -9 $$").outcome.signal, "SIGKILL");
    assert_eq!(
        shell.gives("trap 'echo bye' EXIT; exit 3"),
        gives("bye\n", 3)
    );
    assert_eq!(shell.gives("echo end"), gives("end\n", 0));
}

#[test]
fn redirections_and_jobs_of_one_call_do_not_reach_the_next() {
    let shell = Shell::new();
    assert_eq!(
        shell.gives("exec >/tmp/file 2>&1; echo hidden"),
        gives("", 0)
    );
    assert_eq!(shell.gives("cat /tmp/file"), gives("hidden\n", 0));
    assert_eq!(
        shell.gives("(sleep 0.5; echo late) & echo now"),
        gives("now\n", 0)
    );
    assert_eq!(shell.gives("sleep 1; echo second"), gives("second\n", 0));
    assert_eq!(
        shell.gives("cat; exec 0</dev/null; read x || echo no input"),
        gives("no input\n", 0)
    );
    assert_eq!(
        shell.gives("ls /proc/self/fd | tr '\\n' ' '"),
        gives("0 1 2 3 ", 0)
    );
    assert_eq!(
        shell.gives("set -x; set -C; shopt -s expand_aliases; break; continue"),
        gives("", 0)
    );
    assert_eq!(shell.gives("set +x; echo fine"), gives("fine\n", 0));
}

#[test]
fn names_of_the_drivers_builtins_may_be_taken() {
    let shell = Shell::new();
    let text = "eval() { echo E; }; builtin() { echo B; }; printf() { echo P; }; unset() { echo U; }; shopt() { echo S; }";
    assert_eq!(shell.gives(text), gives("", 0));
    assert_eq!(shell.gives("echo one"), gives("one\n", 0));
    assert_eq!(shell.gives("shopt -s expand_aliases; alias eval='echo A' printf='echo A' builtin='echo A' unset=false"), gives("", 0));
    assert_eq!(shell.gives("alias hi='echo hi'"), gives("", 0));
    assert_eq!(
        shell.gives("hi; shopt -q expand_aliases; echo $?; shopt -q inherit_errexit; echo $?"),
        gives("hi\n0\n1\n", 0)
    );
    assert_eq!(
        shell.gives("trap 'echo $BASH_COMMAND >/dev/null' DEBUG; trap 'true' ERR"),
        gives("", 0)
    );
    assert_eq!(shell.gives("false"), gives("", 1));
    let ran = shell.call("echo last");
    assert_eq!(
        (ran.text().as_str(), ran.outcome.session_restarted),
        ("last\n", false)
    );
}

#[test]
fn one_call_at_a_time_and_several_sessions() {
    let shell = Shell::new();
    let mut client = shell.sandbox.client();
    client
        .background("long", Shell::spec("x=5; sleep 60"))
        .unwrap();
    let error = shell
        .sandbox
        .try_run("busy", Shell::spec("true"))
        .unwrap_err();
    assert!(error.reason == "SESSION_BUSY" && error.retryable);
    client.open_session("other").unwrap();
    let spec = CommandSpec {
        session_id: "other".into(),
        ..sh("echo other")
    };
    assert_eq!(shell.sandbox.run(spec).text(), "other\n");
    client.signal("long", 2, false).unwrap();
    shell
        .sandbox
        .client()
        .attach("long", [0, 0], false)
        .finish()
        .unwrap();
    let sessions = match client
        .call(Call::ListSessions(AetherListSessions {}))
        .unwrap()
    {
        aether_reply::Result::Sessions(list) => list.sessions,
        other => panic!("{other:?}"),
    };
    let ids: Vec<_> = sessions
        .iter()
        .map(|session| session.session_id.as_str())
        .collect();
    assert_eq!(ids, ["other", "s"]);
}

#[test]
fn a_timeout_ends_what_the_call_started() {
    let shell = Shell::new();
    let ran = shell.sandbox.run(CommandSpec {
        timeout_ms: 700,
        ..Shell::spec("echo before; setsid sleep 4713 & sleep 4713")
    });
    assert!(ran.outcome.timed_out && ran.text() == "before\n", "{ran:?}");
    let ran = shell.call("echo again");
    assert!(
        ran.outcome.session_restarted && ran.text() == "again\n",
        "{ran:?}"
    );
    eventually("all is gone", || {
        shell.sandbox.sh("pgrep -cf '[s]leep 4713'").text() == "0\n"
    });
}

#[test]
fn closing_ends_all_that_it_started() {
    let shell = Shell::new();
    shell.call("setsid sleep 4714 & (setsid sleep 4714 &); exit 0");
    shell.call("setsid sleep 4714 &");
    let mut client = shell.sandbox.client();
    client
        .background("in", Shell::spec("echo hello; sleep 60"))
        .unwrap();
    client
        .call(Call::CloseSession(AetherCloseSession {
            session_id: "s".into(),
        }))
        .unwrap();
    eventually("all is gone", || {
        shell.sandbox.sh("pgrep -cf '[s]leep 4714'").text() == "0\n"
    });
    assert_eq!(
        shell
            .sandbox
            .client()
            .attach("in", [0, 0], false)
            .finish()
            .unwrap()
            .outcome
            .signal,
        "SIGKILL"
    );
    let call = Call::CloseSession(AetherCloseSession {
        session_id: "s".into(),
    });
    assert_eq!(client.call(call).unwrap_err().reason, "SESSION_NOT_FOUND");
}

#[test]
fn input_for_a_call() {
    let shell = Shell::new();
    let spec = CommandSpec {
        stdin: b"given\n".to_vec(),
        ..Shell::spec("read -r line; echo got $line; cat")
    };
    let ran = shell.sandbox.run(spec);
    assert_eq!(ran.text(), "got given\n", "{ran:?}");
    assert_eq!(shell.gives("echo $line"), gives("given\n", 0));
}
