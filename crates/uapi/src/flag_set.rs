//! Sets of flags in one number. The crate bitflags has the same, but whoever builds rustix for the
//! command turns its `std` on, and with it that of a library that uses bitflags.

/// Declares a type of such sets, with its flags.
#[macro_export]
macro_rules! flag_set {
    ($(#[$attr:meta])* $vis:vis struct $name:ident: $bits:ident {
        $($(#[$doc:meta])* const $flag:ident = $value:expr;)*
    }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        $vis struct $name($bits);

        #[allow(dead_code)]
        impl $name {
            $($(#[$doc])* $vis const $flag: $name = $name($value as $bits);)*

            /// Returns a set of no flag.
            $vis const fn empty() -> $name {
                $name(0)
            }

            /// Wraps bits, known or not.
            $vis const fn from_bits_retain(bits: $bits) -> $name {
                $name(bits)
            }

            /// Returns the bits, as the kernel takes them.
            $vis const fn bits(self) -> $bits {
                self.0
            }

            $vis const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns whether all of these flags are set.
            $vis const fn contains(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Returns whether any of these flags is set.
            $vis const fn intersects(self, flags: $name) -> bool {
                self.0 & flags.0 != 0
            }

            $vis const fn insert(&mut self, flags: $name) {
                self.0 |= flags.0;
            }

            $vis const fn remove(&mut self, flags: $name) {
                self.0 &= !flags.0;
            }

            /// Inserts the flags, or removes them.
            $vis const fn set(&mut self, flags: $name, on: bool) {
                if on { self.insert(flags) } else { self.remove(flags) }
            }
        }

        impl ::core::ops::BitOr for $name {
            type Output = $name;

            #[inline]
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl ::core::ops::BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }

        impl ::core::ops::Sub for $name {
            type Output = $name;

            /// Removes flags.
            #[inline]
            fn sub(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl ::core::ops::BitAnd for $name {
            type Output = $name;

            #[inline]
            fn bitand(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    flag_set! {
        struct Set: u8 {
            const A = 1;
            const B = 2;
            const BOTH = Self::A.bits() | Self::B.bits();
        }
    }

    #[test]
    fn flags_are_set_and_removed() {
        let mut set = Set::empty();
        assert!(set.is_empty() && !set.intersects(Set::BOTH));
        set.insert(Set::A);
        assert!(set.intersects(Set::BOTH) && !set.contains(Set::BOTH));
        set |= Set::B | Set::from_bits_retain(8);
        assert!(set.contains(Set::BOTH) && set.bits() == 11);
        set.remove(Set::A);
        assert_eq!(set & Set::BOTH, Set::B);
        assert_eq!((set - Set::B).bits(), 8);
        set.set(Set::B, false);
        set.set(Set::A, true);
        assert_eq!(set.bits(), 9);
    }
}
