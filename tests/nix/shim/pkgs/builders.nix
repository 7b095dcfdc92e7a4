# Derivations that nobody builds with Nix: the renderer reads what they would make. A file is
# `text` (`executable`, `destination`), anything else is a `buildCommand`.
{ lib, system }:
let
  derive =
    name: attrs:
    let
      drv = derivation (
        {
          name = lib.strings.sanitizeDerivationName name;
          inherit system;
          builder = "/bin/sh";
          args = [
            "-c"
            "exit 1"
          ];
        }
        // attrs
      );
      self = drv // {
        inherit name;
        outputs = [ "out" ];
        out = self;
        outputSpecified = false;
        meta = { };
        passthru = { };
        override = _: self;
        overrideAttrs =
          change:
          let
            before = attrs // {
              inherit name;
            };
            after = before // lib.toFunction (lib.toFunction change before) before;
          in
          derive after.name (removeAttrs after [ "name" ]) // { inherit (self) meta; };
      };
    in
    self;
in
rec {
  package =
    pname:
    {
      version,
      mainProgram ? null,
      needs ? [ ],
      ...
    }@given:
    derive "${pname}-${version}" { inherit pname version needs; }
    // {
      inherit pname version;
      meta = lib.optionalAttrs (mainProgram != null) { inherit mainProgram; };
    }
    // removeAttrs given [
      "mainProgram"
      "needs"
    ];

  mkDerivation =
    args:
    derive (args.name or "${args.pname}-${args.version}") (
      removeAttrs args [
        "meta"
        "passthru"
        "name"
      ]
    )
    // {
      meta = args.meta or { };
      passthru = args.passthru or { };
    }
    // args.passthru or { };

  runCommand =
    name: env: buildCommand:
    mkDerivation (env // { inherit name buildCommand; });
  runCommandLocal = runCommand;

  writeTextFile =
    {
      name,
      text,
      executable ? false,
      destination ? "",
      checkPhase ? "",
      meta ? { },
      passthru ? { },
      preferLocalBuild ? true,
      allowSubstitutes ? false,
    }:
    derive name {
      inherit
        text
        executable
        destination
        checkPhase
        ;
      passAsFile = [ "text" ];
    }
    // {
      meta =
        lib.optionalAttrs (executable && lib.hasPrefix "/bin/" destination) {
          mainProgram = lib.removePrefix "/bin/" destination;
        }
        // meta;
      inherit passthru;
    }
    // passthru;
  writeText = name: text: writeTextFile { inherit name text; };
  writeTextDir =
    path: text:
    writeTextFile {
      name = builtins.baseNameOf path;
      inherit text;
      destination = "/${path}";
    };
  writeScript =
    name: text:
    writeTextFile {
      inherit name text;
      executable = true;
    };
  writeScriptBin =
    name: text:
    writeTextFile {
      inherit name text;
      executable = true;
      destination = "/bin/${name}";
    };
  linkFarm =
    name: entries:
    runCommand name
      {
        passthru = { inherit entries; };
      }
      (
        "mkdir -p $out\n"
        + lib.concatMapStrings (entry: "ln -s ${entry.path} $out/${entry.name}\n") (
          if builtins.isList entries then
            entries
          else
            lib.mapAttrsToList (name: path: { inherit name path; }) entries
        )
      );
}
