//! The faults, by name.

use softring_uapi::errno::Errno;

/// Makes the enum of faults and the table of their names.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident = $name:literal,)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &[Fault] = &[$(Fault::$fault),*];

            /// Returns the name of the fault, as a SPEC and a log have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)*
                }
            }
        }
    };
}

faults! {
    /// A read or receive transfers fewer bytes than there are.
    ShortRead = "short-read",
    /// A write or send transfers a prefix.
    ShortWrite = "short-write",
    /// A call is interrupted by a signal.
    Eintr = "eintr",
    /// A call that must not wait would have to.
    Eagain = "eagain",
    /// The device fails.
    Eio = "eio",
    /// The device is full.
    Enospc = "enospc",
    /// The peer resets the connection.
    Econnreset = "econnreset",
    /// The user's quota is used up.
    Edquot = "edquot",
    /// The kernel has no memory.
    Enomem = "enomem",
    /// A completion comes later.
    Delay = "delay",
    /// A completion comes behind later ones.
    Reorder = "reorder",
    /// Completions come in bursts that the CQ has no room for.
    Overflow = "overflow",
    /// The completion of a cancelled request comes late.
    CancelLate = "cancel-late",
    /// A connection is gone.
    DropConnection = "drop-connection",
    /// A multishot request ends.
    MultishotEnd = "multishot-end",
    /// The program is woken, and there is no completion.
    SpuriousWake = "spurious-wake",
    /// The SQ thread takes submissions late.
    SqLate = "sq-late",
    /// Data come in pieces so small that provided buffers run out.
    BuffersOut = "buffers-out",
    /// The notification of a zero-copy send comes late.
    NotifLate = "notif-late",
}

impl Fault {
    /// Returns the fault of a name.
    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Returns the error that a request with this fault ends with.
    pub const fn errno(self) -> Option<Errno> {
        Some(match self {
            Fault::Eintr => Errno::EINTR,
            Fault::Eagain => Errno::EAGAIN,
            Fault::Eio => Errno::EIO,
            Fault::Enospc => Errno::ENOSPC,
            Fault::Econnreset | Fault::DropConnection => Errno::ECONNRESET,
            Fault::Edquot => Errno::EDQUOT,
            Fault::Enomem => Errno::ENOMEM,
            _ => return None,
        })
    }

    /// Returns whether a time belongs to the fault.
    pub const fn takes_time(self) -> bool {
        matches!(self, Fault::Delay)
    }
}
