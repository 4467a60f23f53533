//! Injected faults in a trace.

use softring_faults::Fault;

/// Returns the name of a fault by its number in an event.
pub fn fault_name(number: i32) -> Option<&'static str> {
    let number = u8::try_from(number).ok()?;
    Fault::ALL.iter().find(|fault| **fault as u8 == number).map(|fault| fault.name())
}
