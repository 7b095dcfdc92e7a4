# Format and lint of the Nix files, by the tools of nixpkgs.
{
  nixfmt,
  runCommand,
  statix,
  source,
}:
runCommand "corral-style"
  {
    nativeBuildInputs = [
      nixfmt
      statix
    ];
  }
  ''
    cd ${source}
    find . -name '*.nix' -exec nixfmt --check {} +
    statix check .
    touch $out
  ''
