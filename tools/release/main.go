// Command release builds the artifacts of a release from a checkout. `make release` runs
//
//	go -C tools/release run . image -out FOLDER
//
// which writes the container image as an OCI image layout, without Docker. The Dockerfile runs
//
//	go -C tools/release run . files -out FOLDER
//
// which writes the files of the image for one platform into a folder.
//
// `make release` runs
//
//	go -C tools/release run . release -out FOLDER
//
// which writes, for each platform, an archive and a bill of materials, then the packaged chart, the
// image as a tar file, and the checksums of all.
//
// All write the same bytes for the same commit and the same version of Go. All times are those of
// the commit, or of $SOURCE_DATE_EPOCH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// commands lists the artifacts.
var commands = map[string]func(context.Context, options, io.Writer) error{
	"files":   files,
	"image":   image,
	"release": release,
}

// options are the flags of all commands.
type options struct {
	root      string // the checkout
	out       string
	version   string
	platforms []platform
}

// run builds one artifact.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	var command func(context.Context, options, io.Writer) error
	if len(args) > 0 {
		command = commands[args[0]]
	}
	if command == nil {
		return errors.New("usage: release files|image|release -out FOLDER")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	var o options
	flags.StringVar(&o.root, "root", "../..", "`FOLDER` of the checkout")
	flags.StringVar(&o.out, "out", "", "`FOLDER` that gets the artifact; default of image and release: dist/image and dist/release of the checkout")
	flags.StringVar(&o.version, "version", "", "`VERSION` of the artifact; default: that of git describe")
	defaults := "linux/amd64,linux/arm64"
	if args[0] == "release" {
		defaults += ",darwin/amd64,darwin/arm64"
	}
	platforms := flags.String("platforms", defaults, "`LIST` of OS/ARCHITECTURE")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.out == "" && args[0] != "files" {
		o.out = filepath.Join(o.root, "dist", args[0])
	}
	if o.out == "" || flags.NArg() > 0 {
		return fmt.Errorf("%s needs -out FOLDER, and takes no arguments", args[0])
	}
	var err error
	if o.platforms, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	return command(ctx, o, stdout)
}
