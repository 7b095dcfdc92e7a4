# Packages as their name, version and main program; all of them exist in nixpkgs under these names.
let
  package = version: { inherit version; };
  program = version: mainProgram: { inherit version mainProgram; };
in
{
  acl = package "2.3";
  bash = program "5.3" "bash" // {
    shellPath = "/bin/bash";
  };
  coreutils = package "9.8";
  curl = program "8.17" "curl";
  diffutils = package "3.12";
  findutils = package "4.10";
  gawk = program "5.3" "awk";
  gnugrep = program "3.12" "grep";
  gnused = program "4.9" "sed";
  git = program "2.51" "git";
  glibcLocales = package "2.40";
  iproute2 = program "6.17" "ip";
  iptables = program "1.8" "iptables";
  iputils = package "20250605";
  jq = program "1.8" "jq";
  matrix-synapse = program "1.163" "synapse_homeserver";
  netcat = program "4.2" "nc";
  nftables = program "1.1" "nft";
  openssl = program "3.6" "openssl";
  postgresql = program "17.7" "psql";
  procps = package "4.0";
  redis = program "8.2" "redis-cli" // {
    serverBin = "redis-server";
  };
  shadow = package "4.18" // {
    shellPath = "/bin/nologin";
  };
  statix = program "0.5" "statix";
  nixfmt = program "1.1" "nixfmt";
  nixfmt-tree = program "2.3" "treefmt";
  systemd = package "258";
  tmux = program "3.5" "tmux";
  tzdata = package "2025b";
  util-linux = package "2.41";
  valkey = program "9.0" "valkey-cli" // {
    serverBin = "valkey-server";
  };
}
