//! The options of a run and, where they say nothing, the environment, which the library reads:
//! whose rings the program gets, and whether messages are wanted.

use crate::cli::{Engine, UnderArgs};
use crate::fail;
use clap::ValueEnum;
use softring_engine::model::parse;
use softring_uapi::version::Release;
use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Returns the value of a variable; an empty one counts as unset.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns whether a variable is on that is off by default.
fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| value != "0")
}

/// Returns the engine that is named, by an option or else by a value that the library knows.
fn named_engine(under: &UnderArgs) -> Engine {
    let value = || Engine::from_str(variable("SOFTRING_ENGINE")?.to_str()?, false).ok();
    under.engine.or_else(value).unwrap_or(Engine::Auto)
}

/// Returns the engine whose rings the program gets: softring's for models, injected faults and wait
/// policies, which the kernel's rings do not have.
pub fn engine(under: &UnderArgs) -> Engine {
    match named_engine(under) {
        Engine::Auto if under.poll.is_some() || has_models(under) || has_faults(under) => {
            Engine::User
        }
        engine => engine,
    }
}

/// Returns the value to set `SOFTRING_ENGINE` to, if an option gives one or it differs.
pub fn engine_to_set(under: &UnderArgs) -> Option<Engine> {
    let asked = engine(under);
    (under.engine.is_some() || asked != named_engine(under)).then_some(asked)
}

fn has_models(under: &UnderArgs) -> bool {
    let set =
        || variable("SOFTRING_MODEL").is_some_and(|text| parse::models(text.as_bytes()).is_ok());
    !under.model.is_empty() || set()
}

fn has_faults(under: &UnderArgs) -> bool {
    under.faults.any() || variable("SOFTRING_FAULTS").is_some()
}

/// Returns whether kernel aio is to be polled.
pub fn aio_hipri(under: &UnderArgs) -> bool {
    under.aio_hipri || is_on("SOFTRING_AIO_HIPRI")
}

/// Returns whether no messages are wanted.
pub fn quiet(under: &UnderArgs) -> bool {
    under.quiet || is_on("SOFTRING_QUIET")
}

/// Returns whether the kernel's rings must match those of a release.
pub fn has_least(under: &UnderArgs) -> bool {
    let set = || variable("SOFTRING_AT_LEAST")?.to_str()?.parse::<Release>().ok();
    under.at_least.or_else(set).is_some()
}

/// Checks and returns the release of the option.
///
/// # Errors
/// The release is of no use to this engine.
pub fn at_least(under: &UnderArgs) -> anyhow::Result<Option<Release>> {
    if under.at_least.is_some() && engine(under) != Engine::Auto {
        let hint = "leave out --engine and SOFTRING_ENGINE, which choose the rings without regard \
                    to the release";
        return Err(fail::usage(
            "--at-least chooses between the kernel's rings and softring's",
            hint,
        ));
    }
    Ok(under.at_least)
}

/// Checks the models of the options, and returns them as the environment carries them.
///
/// # Errors
/// A model cannot be understood, or is of no use to this engine.
pub fn models(under: &UnderArgs) -> anyhow::Result<Option<OsString>> {
    if under.model.is_empty() {
        return Ok(None);
    }
    if engine(under) == Engine::Kernel {
        let hint = "leave out --engine and SOFTRING_ENGINE, or use --engine=user";
        return Err(fail::usage("--model needs softring's rings", hint));
    }
    let hint = "softring run --help describes models";
    let wrong = |e: String| fail::usage(format!("--model: {e}"), hint);
    let each = under.model.iter().map(|m| parse::absolute(m.as_bytes()).map_err(wrong));
    let all = each.collect::<Result<Vec<_>, _>>()?.join(&b';');
    parse::models(&all).map_err(wrong)?;
    Ok(Some(OsString::from_vec(all)))
}
