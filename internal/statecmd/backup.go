package statecmd

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fileerr"
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
		Setup: func(f *cli.Flags) cli.Run { return (&backup{selection: newSelection(f)}).run },
	}
}

// backup is a command line.
type backup struct {
	*selection

	db *checkpoint.DB // nil: the running router makes the copy
}

func (b *backup) run(ctx context.Context, s cli.Streams, args []string) (err error) {
	if len(args) != 1 && len(args) != 2 {
		return cli.Mistakef("name the file to write, or - for standard output")
	}
	file := args[len(args)-1]
	if b.db, err = b.open(ctx, args[:len(args)-1]); err != nil {
		return err
	}
	if b.db != nil {
		defer func() { err = errors.Join(err, b.db.Close()) }()
	}
	content := func(w io.Writer) (time.Time, error) { return b.copyTo(ctx, w) }
	if file == "-" {
		_, err := content(s.Raw)
		return err
	}
	report, err := write(file, content)
	if err != nil {
		return err
	}
	cli.Printf(s.Err, "Wrote %s: format %d, %d bytes, last write %s.\n", report.File, report.Format, report.Size, report.Written.UTC().Format(time.RFC3339))
	return nil
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
	return info.ModTime(), explain(b.db.CopyTo(ctx, w))
}
