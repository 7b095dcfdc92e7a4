# `nix run .#demo`: the demo with everything that it starts.
{
  python3,
  corral,
  redis,
  tmux,
  writeShellApplication,
}:
writeShellApplication {
  name = "corral-demo";
  runtimeInputs = [
    (python3.withPackages (packages: [ (packages.toPythonModule corral) ]))
    redis
    tmux
  ];
  text = ''
    exec python3 -P -m corral.local.demo "$@"
  '';
}
