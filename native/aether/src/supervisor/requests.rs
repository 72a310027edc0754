//! What each request of the edge leads to.

use std::collections::BTreeMap;

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::{
    AetherCommands, AetherHello, AetherHelloReply, AetherListCommands, AetherRequest,
    ListSessionsResponse,
};

use super::environment::{check_env, Base};
use super::{Purpose, Supervisor};
use crate::errors::{failure, Failure};
use crate::link::{what, Order};
use crate::sys;

const VERSION: u32 = 1;
/// Bytes of a list before it is cut and `next` says where it goes on.
const MAX_LIST: usize = 512 * 1024;

impl Supervisor {
    pub(super) fn request(&mut self, id: u32, request: AetherRequest, encoded: Vec<u8>) {
        let number = request.id;
        if let Err(failed) = self.answer(id, request, encoded) {
            // Not one of those that were counted as to come later.
            self.await_answer(id);
            self.reply_error(id, number, failed);
        }
    }

    fn answer(&mut self, id: u32, request: AetherRequest, encoded: Vec<u8>) -> Result<(), Failure> {
        let number = request.id;
        let Some(call) = request.call else {
            return Err(failure(
                "NO_SUCH_METHOD",
                "this version of aether does not know the request",
            ));
        };
        if !self.is_greeted(id) && !matches!(call, Call::Hello(_)) {
            return Err(failure(
                "INVALID_ARGUMENT",
                "the first request on a connection is Hello",
            ));
        }
        let asks = matches!(
            call,
            Call::Hello(_)
                | Call::Configure(_)
                | Call::Ping(_)
                | Call::GetCommand(_)
                | Call::ListCommands(_)
                | Call::ListSessions(_)
        );
        if !asks {
            self.last_active = sys::now_ns();
        }
        match call {
            Call::Hello(hello) => {
                let reply = self.hello(hello)?;
                self.greet(id);
                self.reply(id, number, Reply::Hello(reply));
            }
            Call::Configure(configure) => {
                check_env(&configure.env)?;
                check_env(&configure.secret_env)?;
                let mut env: BTreeMap<String, String> = configure.env;
                env.extend(configure.secret_env);
                self.base = Base {
                    env,
                    user: configure.user,
                    cwd: configure.cwd,
                };
                self.configured = true;
                self.reply_now(id, number);
            }
            Call::Ping(_) => {
                let token = self.token(Purpose::Ping {
                    connection: id,
                    request: number,
                });
                self.await_answer(id);
                self.order(
                    Order {
                        what: what::PING,
                        token,
                        ..Default::default()
                    },
                    Vec::new(),
                );
            }
            Call::Start(start) => self.start(id, number, start)?,
            Call::Attach(attach) => self.attach_known(id, number, attach)?,
            Call::Input(input) => {
                let reply = self.write_input(input)?;
                self.reply(id, number, Reply::Input(reply));
            }
            Call::Signal(signal) => {
                self.signal(signal)?;
                self.reply_now(id, number);
            }
            Call::Resize(resize) => {
                self.resize(resize)?;
                self.reply_now(id, number);
            }
            Call::GetCommand(get) => {
                let info = match self.find(&get.command_id) {
                    Some(super::command::Known::Live(number)) => self.info_of(number),
                    Some(super::command::Known::Archived(archived)) => Some(archived.info),
                    None => None,
                };
                let missing = || {
                    failure(
                        "COMMAND_NOT_FOUND",
                        format!("no command {:?} in this sandbox", get.command_id),
                    )
                };
                self.reply(id, number, Reply::Command(info.ok_or_else(missing)?));
            }
            Call::ListCommands(list) => {
                let reply = self.list_commands(&list);
                self.reply(id, number, Reply::Commands(reply));
            }
            Call::OpenSession(open) => self.open_session(id, number, open)?,
            Call::CloseSession(close) => self.close_session(id, number, &close.session_id)?,
            Call::ListSessions(_) => {
                let sessions = self
                    .sessions
                    .values()
                    .map(|session| session.info.clone())
                    .collect();
                self.reply(
                    id,
                    number,
                    Reply::Sessions(ListSessionsResponse { sessions }),
                );
            }
            Call::Stat(call) => self.start_worker(id, number, encoded, call.user, false)?,
            Call::ListDirectory(call) => {
                self.start_worker(id, number, encoded, call.user, false)?
            }
            Call::MakeDirectory(call) => {
                self.start_worker(id, number, encoded, call.user, false)?
            }
            Call::Move(call) => self.start_worker(id, number, encoded, call.user, false)?,
            Call::Remove(call) => self.start_worker(id, number, encoded, call.user, false)?,
            Call::Watch(call) => self.start_worker(id, number, encoded, call.user, true)?,
            Call::ReadFile(call) => self.start_worker(id, number, encoded, call.user, true)?,
            Call::WriteFile(call) => self.start_worker(id, number, encoded, call.user, true)?,
            Call::ReadTree(call) => self.start_worker(id, number, encoded, call.user, true)?,
            Call::WriteTree(call) => self.start_worker(id, number, encoded, call.user, true)?,
        }
        Ok(())
    }

    /// The call is done at once and has nothing to say.
    fn reply_now(&mut self, id: u32, number: u32) {
        self.await_answer(id);
        self.reply_done(id, number);
    }

    fn hello(&self, hello: AetherHello) -> Result<AetherHelloReply, Failure> {
        if hello.sandbox_id != self.sandbox_id {
            let message = format!(
                "asked for sandbox {:?}, this is {:?}",
                hello.sandbox_id, self.sandbox_id
            );
            return Err(failure("WRONG_SANDBOX", message));
        }
        if hello.min_version > VERSION || hello.max_version < VERSION {
            let message = format!(
                "asked for versions {} to {}, this aether speaks {VERSION}",
                hello.min_version, hello.max_version
            );
            return Err(failure("VERSION_UNSUPPORTED", message));
        }
        // SAFETY: plain call.
        let aether_pid = unsafe { libc::getpid() };
        Ok(AetherHelloReply {
            version: VERSION,
            sandbox_id: self.sandbox_id.clone(),
            aether_pid,
            aether_start_time: sys::start_time(aether_pid),
            init_pid: self.init_pid,
            init_start_time: sys::start_time(self.init_pid),
            configured: self.configured,
            running_commands: self.running(),
            idle_ms: sys::now_ns().saturating_sub(self.last_active) / 1_000_000,
        })
    }

    fn list_commands(&self, list: &AetherListCommands) -> AetherCommands {
        let limit = if list.limit == 0 {
            100
        } else {
            list.limit.min(1000)
        } as usize;
        let mut reply = AetherCommands::default();
        let mut bytes = 0;
        for number in self.history.numbers(list.from) {
            if list.running_only && !self.is_running(number) {
                continue;
            }
            let Some(info) = self.info_of(number) else {
                continue;
            };
            bytes += info.encoded_len();
            if reply.commands.len() == limit || (bytes > MAX_LIST && !reply.commands.is_empty()) {
                reply.next = number;
                break;
            }
            reply.commands.push(info);
        }
        reply
    }
}
