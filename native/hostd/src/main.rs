use hostd::config::{Config, USAGE};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--probe") {
        println!("{}", hostd::probe::run());
        return;
    }
    let config = Config::parse(&arguments).unwrap_or_else(|what| {
        eprintln!("hostd: {what}\n{USAGE}");
        std::process::exit(2);
    });
    if let Err(fault) = hostd::server::serve(config) {
        eprintln!("hostd: {}", fault.message);
        std::process::exit(1);
    }
}
