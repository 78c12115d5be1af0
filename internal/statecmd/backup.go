package statecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/checkpoint/archive"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

func backupCommand() cli.Command {
	return cli.Command{
		Name:    "backup",
		Args:    "[FOLDER] FILE",
		Summary: "Write a consistent copy of the state file, also of a running router",
		Description: `
It copies the state file of FOLDER, or of the state.dir of the configuration. If a router uses it, that router makes the
copy and sends it over its API (listen.api): it has the state as of one checkpoint, and the router goes on meanwhile. FILE
must not exist; it gets its name once it is complete, on disk and verified. With - the copy goes to standard output.

To restore it, stop the router, copy FILE over state.db in the state folder, and start the router.`,
		Examples: []cli.Example{
			{Line: "router state backup -config config.yaml backup.db", Text: "the state of a configuration, whether its router runs or not"},
			{Line: "router state backup -api 127.0.0.1:8484 - > backup.db", Text: "the state of the router with this API"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			b := &backup{flags: f}
			b.AddAddress(f)
			return b.run
		},
	}
}

// backup is a command line.
type backup struct {
	cli.Remote

	flags *cli.Flags
	args  []string       // the folder, if the command line names one
	path  string         // of the state file
	db    *checkpoint.DB // nil: the running router makes the copy
}

func (b *backup) run(ctx context.Context, s cli.Streams, args []string) (err error) {
	b.Streams = s
	switch len(args) {
	case 1, 2:
		b.args = args[:len(args)-1]
	default:
		return cli.Mistakef("name the file to write, or - for standard output")
	}
	if len(b.args) > 0 && b.Addr != "" {
		return cli.Mistakef("name either a folder or -api")
	}
	if err := b.find(); err != nil {
		return err
	}
	if b.db != nil {
		defer func() { err = errors.Join(err, b.db.Close()) }()
	}
	file := args[len(args)-1]
	content := func(w io.Writer) (time.Time, error) { return b.copyTo(ctx, w) }
	if file == "-" {
		_, err := content(s.Raw)
		return err
	}
	report, err := archive.Write(file, content)
	if err != nil {
		return err
	}
	cli.Printf(s.Err, "Wrote %s: format %d, %d bytes, last write %s.\n", report.File, report.Format, report.Size, report.Written.UTC().Format(time.RFC3339))
	return nil
}

// find opens the state file, or finds the API of the router that uses it.
func (b *backup) find() error {
	if b.Addr != "" {
		b.Client = api.NewClient(b.Addr)
		return nil
	}
	c := selection{flags: b.flags, config: b.Config}
	if err := c.find(b.args); err != nil {
		return err
	}
	b.path = c.path
	var err error
	b.db, err = checkpoint.OpenReadOnly(c.path)
	var locked *checkpoint.LockedError
	switch {
	case !errors.As(err, &locked):
		return explain(c.path, err)
	case c.cfg != nil && c.cfg.Listen.API != "":
		b.Client = api.NewClient(c.cfg.Listen.API)
		return nil
	case c.cfg != nil:
		return fmt.Errorf("%s is used by %s, and %s has no listen.api: add it and restart the router, or stop the router", c.path, locked.Holder(), b.Config)
	}
	return fmt.Errorf("%s is used by %s: name the API of that router with -api ADDR, or its configuration with -config FILE, or stop it", c.path, locked.Holder())
}

// copyTo writes the copy, and returns the time of the last write to the state.
func (b *backup) copyTo(ctx context.Context, w io.Writer) (written time.Time, err error) {
	if b.db == nil {
		return b.Client.Backup(ctx, w)
	}
	info, err := os.Stat(b.path)
	if err != nil {
		return time.Time{}, fileerr.Explain(err)
	}
	return info.ModTime(), explain(b.path, b.db.CopyTo(ctx, w))
}
