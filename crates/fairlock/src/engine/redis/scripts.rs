//! The Lua scripts: put together from their files, and how operations and replies look to them.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::keys;
use crate::engine::{Grant, Renewed};
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{Name, OwnerId, Token};
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{
    Claim, Details, Heard, Lease, Op, Record, Renew, Reply, State, Ticket, Waiting,
};
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
    fair_acquire: Script,
    fair_release: Script,
    fair_beat: Script,
    fair_inspect: Script,
}

/// The scripts as they are.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::behind(""));

impl Scripts {
    /// The scripts behind a part that a test puts before each of them.
    pub(crate) fn behind(front: &str) -> Self {
        let script = |parts: &[&str]| {
            let source = parts.join("\n");
            let digest = sha1_smol::Sha1::from(&source).hexdigest();
            Script { source, digest }
        };
        let shared = include_str!("lua/_reentrant.lua");
        let (fair, queue) = (include_str!("lua/_fair.lua"), include_str!("lua/_queue.lua"));
        let plain = |body: &str| script(&[front, shared, body]);
        let fair = |usual: &str, body: &str| script(&[front, shared, fair, usual, queue, body]);
        Self {
            acquire: plain(include_str!("lua/acquire.lua")),
            reenter: plain(include_str!("lua/reenter.lua")),
            release: plain(include_str!("lua/release.lua")),
            renew: plain(include_str!("lua/renew.lua")),
            inspect: plain(include_str!("lua/inspect.lua")),
            fair_acquire: fair(
                include_str!("lua/_usual_acquire.lua"),
                include_str!("lua/fair_acquire.lua"),
            ),
            fair_release: fair(
                include_str!("lua/_usual_release.lua"),
                include_str!("lua/fair_release.lua"),
            ),
            fair_beat: fair("", include_str!("lua/fair_beat.lua")),
            fair_inspect: fair("", include_str!("lua/fair_inspect.lua")),
        }
    }

    /// The sources of all scripts, to be loaded at connect.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        let plain = [&self.acquire, &self.reenter, &self.release, &self.renew, &self.inspect];
        let fair = [&self.fair_acquire, &self.fair_release, &self.fair_beat, &self.fair_inspect];
        plain.into_iter().chain(fair).map(|script| script.source.as_str())
    }

    /// The call of an operation.
    pub(crate) fn call<'a>(&'a self, name: &'a Name, op: &'a Op, expires: ServerTime) -> Call<'a> {
        let script = match op {
            // Without a queue to wait in, that is the same.
            Op::Acquire(_) | Op::Queue { .. } => &self.acquire,
            Op::Reenter { .. } => &self.reenter,
            Op::Release { .. } => &self.release,
            Op::Inspect => &self.inspect,
        };
        Call { script, expires, what: What::Op(name, op) }
    }

    /// The call of an operation on a fair lock.
    pub(crate) fn fair_call<'a>(
        &'a self,
        name: &'a Name,
        op: &'a Op,
        asker: Asker<'a>,
        expires: ServerTime,
    ) -> Call<'a> {
        let script = match op {
            Op::Acquire(_) | Op::Queue { .. } => &self.fair_acquire,
            // Who holds the lock has nothing to do with the queue.
            Op::Reenter { .. } => return self.call(name, op, expires),
            Op::Release { .. } => &self.fair_release,
            Op::Inspect => &self.fair_inspect,
        };
        Call { script, expires, what: What::FairOp(name, op, asker) }
    }

    /// The call of a heartbeat.
    pub(crate) fn fair_beat<'a>(
        &'a self,
        name: &'a Name,
        beat: &'a Heartbeat,
        asker: Asker<'a>,
        expires: ServerTime,
    ) -> Call<'a> {
        Call { script: &self.fair_beat, expires, what: What::FairBeat(name, beat, asker) }
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
    FairOp(&'a Name, &'a Op, Asker<'a>),
    FairBeat(&'a Name, &'a Heartbeat, Asker<'a>),
}

/// Who asks about a fair lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) client: &'a str,
    /// How long a waiter lives without a heartbeat.
    pub(crate) waiter_ttl_ms: u64,
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
            What::FairOp(name, op, asker) => {
                self.add_fair(&mut cmd, name, *asker);
                add_fair_op(&mut cmd, op);
            }
            What::FairBeat(name, beat, asker) => {
                self.add_fair(&mut cmd, name, *asker);
                for owner in &beat.waiting {
                    cmd.arg(owner.as_str());
                }
            }
        }
        cmd
    }

    fn add_op(&self, cmd: &mut Cmd, name: &Name, op: &Op) {
        cmd.arg(2).arg(name.as_bytes()).arg(keys::record(name)).arg(self.expires.0);
        match op {
            Op::Acquire(claim) | Op::Queue { claim, .. } => add_claim(cmd, claim),
            Op::Reenter { owner, count, lease_ms } => {
                cmd.arg(owner.as_str()).arg(*count).arg(*lease_ms);
            }
            Op::Release { owner, remaining, next } => {
                cmd.arg(owner.as_str()).arg(*remaining).arg(keys::channel(name));
                match next {
                    Some(next) => add_claim(cmd, next),
                    None => {
                        cmd.arg("").arg(0).arg("");
                    }
                }
            }
            Op::Inspect => {}
        }
    }

    /// What all scripts of the fair lock take.
    fn add_fair(&self, cmd: &mut Cmd, name: &Name, asker: Asker<'_>) {
        cmd.arg(5).arg(name.as_bytes()).arg(keys::record(name));
        cmd.arg(keys::queue(name)).arg(keys::scores(name)).arg(keys::places(name));
        cmd.arg(self.expires.0).arg(asker.waiter_ttl_ms).arg(keys::channel(name));
        cmd.arg(asker.client);
    }
}

fn add_fair_op(cmd: &mut Cmd, op: &Op) {
    match op {
        Op::Acquire(claim) => {
            add_claim(cmd, claim);
            cmd.arg("");
        }
        Op::Queue { claim, ticket } => {
            add_claim(cmd, claim);
            match ticket {
                Some(ticket) => cmd.arg(ticket.0),
                None => cmd.arg("first"),
            };
        }
        Op::Release { owner, remaining, .. } => {
            cmd.arg(owner.as_str()).arg(*remaining);
        }
        Op::Reenter { .. } | Op::Inspect => {}
    }
}

fn add_claim(cmd: &mut Cmd, claim: &Claim) {
    cmd.arg(claim.owner.as_str()).arg(claim.lease_ms).arg(&*claim.identity);
}

/// Reads the answer to an operation.
pub(crate) fn parse_reply(value: Value) -> Result<Reply, StoreError> {
    let parts = into_array(value)?;
    let mut reply = parse_head(&parts)?;
    if let [fields, record, queue @ ..] = &parts[HEAD..] {
        let texts: Vec<String> =
            into_array(fields.clone())?.iter().map(parse_text).collect::<Result<_, _>>()?;
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        let record = Record::parse(&parse_text(record)?);
        let waiters = queue.first().map(parse_waiters).transpose()?.unwrap_or_default();
        reply.details = Some(Details { fields: pairs.collect(), record, waiters });
    }
    Ok(reply)
}

fn parse_waiters(value: &Value) -> Result<Vec<Waiting>, StoreError> {
    let waiting = |parts: &[Value]| {
        let number =
            |index: usize| parse_int(&parts[index]).map(|number| u64::try_from(number).ok());
        Ok(Waiting {
            owner: OwnerId::new(parse_text(&parts[0])?),
            score: number(1)?,
            place: number(2)?.map(Ticket).zip(number(3)?.map(ServerTime)),
        })
    };
    into_array(value.clone())?.chunks_exact(4).map(waiting).collect()
}

/// Reads the answer to a heartbeat.
pub(crate) fn parse_beaten(value: Value) -> Result<Beaten, StoreError> {
    let parts = into_array(value)?;
    let reply = parse_head(&parts)?;
    let states = parts[HEAD..].iter().map(parse_state).collect::<Result<_, _>>()?;
    Ok(Beaten { states, reply })
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
    let [state, server_us, lease_ms, position, token, grantee, heard, foreign, ..] = parts else {
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
        foreign: parse_int(foreign)? == 1,
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
const HEAD: usize = 8;

/// Reads the message about a grant: `owner token granted_ms`.
pub(crate) fn parse_grant(content: &str) -> Option<Grant> {
    let mut words = content.split(' ');
    Some(Grant {
        owner: OwnerId::new(words.next()?),
        token: Token(words.next()?.parse().ok()?),
        granted_ms: words.next()?.parse().ok()?,
    })
}
