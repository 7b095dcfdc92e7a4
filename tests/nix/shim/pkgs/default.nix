{
  lib,
  system,
  config,
  overlays,
}:
let
  builders = import ./builders.nix { inherit lib system; };
  formats = import ./formats.nix;

  made =
    overlays:
    lib.fix (
      builtins.foldl' (before: overlay: lib.extends overlay before) (base overlays) overlays
    );

  base =
    overlays: pkgs:
    builtins.mapAttrs builders.package (import ./names.nix)
    // {
      inherit
        lib
        config
        overlays
        system
        ;
      _type = "pkgs";
      inherit pkgs;
      buildPackages = pkgs;
      callPackage = lib.callPackageWith pkgs;
      extend = overlay: made (overlays ++ [ overlay ]);
      stdenv = {
        hostPlatform = {
          inherit system;
          isLinux = true;
        };
        inherit (builders) mkDerivation;
        shell = "${pkgs.bash}/bin/bash";
        shellDryRun = "${pkgs.bash}/bin/bash -n -O extglob";
      };
      stdenvNoCC = pkgs.stdenv;
      inherit (builders)
        linkFarm
        runCommand
        runCommandLocal
        writeScript
        writeScriptBin
        writeText
        writeTextDir
        writeTextFile
        ;
      runtimeShell = "${pkgs.bash}/bin/bash";
      runtimeShellPackage = pkgs.bash;
      bashInteractive = pkgs.bash;

      writeShellScript =
        name: text:
        pkgs.writeTextFile {
          inherit name;
          executable = true;
          text = "#!${pkgs.runtimeShell}\n${text}\n";
          checkPhase = "${pkgs.stdenv.shellDryRun} \"$target\"\n";
        };
      writeShellScriptBin =
        name: text:
        pkgs.writeTextFile {
          inherit name;
          executable = true;
          destination = "/bin/${name}";
          text = "#!${pkgs.runtimeShell}\n${text}\n";
          checkPhase = "${pkgs.stdenv.shellDryRun} \"$target\"\n";
          meta.mainProgram = name;
        };
      writeShellApplication =
        {
          name,
          text,
          runtimeInputs ? [ ],
          runtimeEnv ? null,
          meta ? { },
          passthru ? { },
          bashOptions ? [
            "errexit"
            "nounset"
            "pipefail"
          ],
        }:
        pkgs.writeTextFile {
          inherit name passthru;
          executable = true;
          destination = "/bin/${name}";
          text =
            "#!${pkgs.runtimeShell}\n"
            + lib.concatMapStrings (option: "set -o ${option}\n") bashOptions
            + lib.optionalString (runtimeEnv != null) (
              lib.concatStrings (
                lib.mapAttrsToList (
                  key: value: "${lib.toShellVar key value}\nexport ${key}\n"
                ) runtimeEnv
              )
            )
            + lib.optionalString (
              runtimeInputs != [ ]
            ) "\nexport PATH=\"${lib.makeBinPath runtimeInputs}:$PATH\"\n"
            + "\n${text}\n";
          checkPhase = "${pkgs.stdenv.shellDryRun} \"$target\"\n";
          meta = {
            mainProgram = name;
          }
          // meta;
        };

      formats = formats { inherit lib pkgs; };
      mkShell =
        args: builders.mkDerivation ({ name = "nix-shell"; } // removeAttrs args [ "packages" ]);
      python3 = import ./python.nix { inherit lib builders pkgs; };
      python3Packages = pkgs.python3.pkgs;
      python313Packages = pkgs.python3.pkgs;
      testers.runNixOSTest =
        test:
        import ../nixos/test.nix {
          inherit lib pkgs test;
        };
      nixosOptionsDoc =
        { options, ... }:
        {
          optionsJSON = pkgs.writeTextDir "share/doc/nixos/options.json" (
            builtins.toJSON (lib.optionAttrSetToDocList options)
          );
        };
    };
in
made overlays
