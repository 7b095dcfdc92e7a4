# `nix develop`: what `./corral` needs on a machine without Debian's packages.
{
  git,
  mkShell,
  nixfmt,
  python3,
  redis,
  statix,
  tmux,
}:
mkShell {
  packages = [
    git
    nixfmt
    python3
    redis
    statix
    tmux
  ];
}
