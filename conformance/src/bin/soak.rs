//! `softring-soak`: the soak's command.

fn main() -> std::process::ExitCode {
    softring_conformance::soak::command::main()
}
