//! `softring-environments`: rings under other people's policies.

fn main() -> std::process::ExitCode {
    softring_conformance::environments::command::main()
}
