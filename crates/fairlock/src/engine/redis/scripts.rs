//! The Lua scripts: put together from their files, and how operations and replies look to them.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::keys;
use crate::engine::Renewed;
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{Name, OwnerId, Token};
use crate::protocol::op::{Details, Heard, Lease, Op, Record, Renew, Reply, State};
use crate::time::ServerTime;

/// One script, ready to be called by its digest or sent as a whole.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    digest: String,
}

/// All scripts of this crate.
#[derive(Debug)]
pub(crate) struct Scripts {
    acquire: Script,
    reenter: Script,
    release: Script,
    renew: Script,
    inspect: Script,
}

/// The scripts on the server's clock.
pub(crate) static SCRIPTS: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::with_clock(include_str!("lua/_clock.lua")));

impl Scripts {
    /// The scripts on the clock of this file: the server's, or one of a test.
    pub(crate) fn with_clock(clock: &str) -> Self {
        let script = |body: &str| {
            let source = [clock, include_str!("lua/_reentrant.lua"), body].join("\n");
            let digest = sha1_smol::Sha1::from(&source).hexdigest();
            Script { source, digest }
        };
        Self {
            acquire: script(include_str!("lua/acquire.lua")),
            reenter: script(include_str!("lua/reenter.lua")),
            release: script(include_str!("lua/release.lua")),
            renew: script(include_str!("lua/renew.lua")),
            inspect: script(include_str!("lua/inspect.lua")),
        }
    }

    /// The sources of all scripts, to be loaded at connect.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        let all = [&self.acquire, &self.reenter, &self.release, &self.renew, &self.inspect];
        all.into_iter().map(|script| script.source.as_str())
    }

    /// The call of an operation.
    pub(crate) fn call<'a>(&'a self, name: &'a Name, op: &'a Op, expires: ServerTime) -> Call<'a> {
        let script = match op {
            Op::Acquire(_) => &self.acquire,
            Op::Reenter { .. } => &self.reenter,
            Op::Release { .. } => &self.release,
            Op::Inspect => &self.inspect,
        };
        Call { script, expires, what: What::Op(name, op) }
    }

    /// The call of a batch of renewals.
    pub(crate) fn renew<'a>(&'a self, items: &'a [Renew], expires: ServerTime) -> Call<'a> {
        Call { script: &self.renew, expires, what: What::Renew(items) }
    }
}

/// One call of a script.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    script: &'a Script,
    expires: ServerTime,
    what: What<'a>,
}

#[derive(Debug)]
enum What<'a> {
    Op(&'a Name, &'a Op),
    Renew(&'a [Renew]),
}

impl Call<'_> {
    /// Calls the script that the server should know already.
    pub(crate) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.digest)
    }

    /// Sends the script along, for a server that has forgotten it.
    pub(crate) fn by_source(&self) -> Cmd {
        self.command("EVAL", &self.script.source)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script);
        match &self.what {
            What::Op(name, op) => self.add_op(&mut cmd, name, op),
            What::Renew(items) => {
                cmd.arg(items.len() * 2);
                for item in *items {
                    cmd.arg(item.name.as_bytes()).arg(keys::record(&item.name));
                }
                cmd.arg(self.expires.0);
                for item in *items {
                    cmd.arg(item.owner.as_str()).arg(item.count).arg(item.lease_ms);
                }
            }
        }
        cmd
    }

    fn add_op(&self, cmd: &mut Cmd, name: &Name, op: &Op) {
        cmd.arg(2).arg(name.as_bytes()).arg(keys::record(name)).arg(self.expires.0);
        match op {
            Op::Acquire(claim) => {
                cmd.arg(claim.owner.as_str()).arg(claim.lease_ms).arg(&*claim.identity);
            }
            Op::Reenter { owner, count, lease_ms } => {
                cmd.arg(owner.as_str()).arg(*count).arg(*lease_ms);
            }
            Op::Release { owner, remaining, next } => {
                cmd.arg(owner.as_str()).arg(*remaining).arg(keys::channel(name));
                match next {
                    Some(next) => {
                        cmd.arg(next.owner.as_str()).arg(next.lease_ms).arg(&*next.identity)
                    }
                    None => cmd.arg("").arg(0).arg(""),
                };
            }
            Op::Inspect => {}
        }
    }
}

/// Reads the answer to an operation.
pub(crate) fn parse_reply(value: Value) -> Result<Reply, StoreError> {
    let parts = into_array(value)?;
    let mut reply = parse_head(&parts)?;
    if let [fields, record] = &parts[HEAD..] {
        let texts: Vec<String> =
            into_array(fields.clone())?.iter().map(parse_text).collect::<Result<_, _>>()?;
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        let record = Record::parse(&parse_text(record)?);
        reply.details = Some(Details { fields: pairs.collect(), record });
    }
    Ok(reply)
}

/// Reads the answer to a batch of renewals.
pub(crate) fn parse_renewed(value: Value) -> Result<Renewed, StoreError> {
    let parts = into_array(value)?;
    let head = parse_head(&parts)?;
    if head.state == State::Late {
        return Ok(Renewed { server_time: head.server_time, items: None });
    }
    let item =
        |pair: &[Value]| Ok((parse_state(&pair[0])?, Lease::from_pttl(parse_int(&pair[1])?)));
    let items = parts[HEAD..].chunks_exact(2).map(item).collect::<Result<_, StoreError>>()?;
    Ok(Renewed { server_time: head.server_time, items: Some(items) })
}

fn parse_head(parts: &[Value]) -> Result<Reply, StoreError> {
    let [state, server_us, lease_ms, position, token, grantee, heard, ..] = parts else {
        return Err(unexpected());
    };
    let grantee = parse_text(grantee)?;
    Ok(Reply {
        state: parse_state(state)?,
        server_time: ServerTime(parse_int(server_us)?.unsigned_abs()),
        lease: Lease::from_pttl(parse_int(lease_ms)?),
        position: parse_int(position)?.unsigned_abs(),
        token: Token(parse_int(token)?.unsigned_abs()),
        grantee: (!grantee.is_empty()).then(|| OwnerId::new(grantee)),
        heard: u64::try_from(parse_int(heard)?).map_or(Heard::Refused, Heard::By),
        details: None,
    })
}

fn parse_state(value: &Value) -> Result<State, StoreError> {
    State::from_number(parse_int(value)?).ok_or_else(unexpected)
}

fn parse_int(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unexpected()),
    }
}

fn parse_text(value: &Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        _ => Err(unexpected()),
    }
}

fn into_array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(parts) => Ok(parts),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> StoreError {
    StoreError::new(StoreErrorKind::Unexpected)
}

/// The parts that every reply begins with.
const HEAD: usize = 7;
