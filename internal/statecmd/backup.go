package statecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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

The copy has no history. -history also copies that of a stopped router, into a folder that must not exist. The command
prints what else is not in the backup.

To restore it, stop the router, copy FILE over state.db in the state folder, and start the router. A copy of the history
belongs beside it, as the folder history, instead of the one that is there.`,
		Examples: []cli.Example{
			{Line: "router state backup -config config.yaml backup.db", Text: "the state of a configuration, whether its router runs or not"},
			{Line: "router state backup -api 127.0.0.1:8484 - > backup.db", Text: "the state of the router with this API"},
			{Line: "router state backup -history b/history ./state b/state.db", Text: "the state and the history of a stopped router: b is a state folder, too"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			b := &backup{selection: newSelection(f)}
			f.StringVar(&b.history, "history", "", "`FOLDER` also copy the history of a stopped router into this new folder")
			return b.run
		},
	}
}

// hashKey is the file of the key of hashes in the state folder.
const hashKey = "hash.key"

// backup is a command line.
type backup struct {
	*selection

	history string         // the folder for the copy of the history; empty: it is not copied
	db      *checkpoint.DB // nil: the running router makes the copy
}

func (b *backup) run(ctx context.Context, s cli.Streams, args []string) (err error) {
	if len(args) != 1 && len(args) != 2 {
		return cli.Mistakef("name the file to write, or - for standard output")
	}
	file := args[len(args)-1]
	b.stopped = b.history != ""
	if b.db, err = b.open(ctx, args[:len(args)-1]); err != nil {
		return err
	}
	if b.db != nil {
		defer func() { err = errors.Join(err, b.db.Close()) }()
	}
	from := b.historyDir()
	if b.history != "" {
		if from == "" {
			return cli.Invalid(b.noHistory())
		}
		if err := unused(b.history); err != nil { // before the other copy is made
			return err
		}
	}
	content := func(w io.Writer) (time.Time, error) { return b.copyTo(ctx, w) }
	if file == "-" {
		_, err = content(s.Raw)
	} else {
		var report *Report
		if report, err = write(file, content); err == nil {
			cli.Printf(s.Err, "Wrote %s: format %d, %d bytes, last write %s.\n", report.File, report.Format, report.Size, report.Written.UTC().Format(time.RFC3339))
		}
	}
	if err != nil {
		return err
	}
	if b.history != "" {
		segments, size, err := copyHistory(ctx, from, b.history)
		if err != nil {
			return fmt.Errorf("%s is complete, but not the history: %w", file, err)
		}
		cli.Printf(s.Err, "Wrote %s: %s, %d bytes.\n", b.history, cli.Count(segments, "segment"), size)
	}
	if missing := b.notCopied(from); len(missing) > 0 {
		cli.Printf(s.Err, "Not in the backup: %s.\n", strings.Join(missing, "; "))
	}
	return nil
}

// notCopied lists the parts of the state folder that are not in the backup. The folder cache and
// damaged files are not worth a copy.
func (b *backup) notCopied(history string) (missing []string) {
	switch {
	case b.live:
		missing = append(missing, "the history, if the router records one (with -history after its stop, or a recording of it by router backtest -save)")
	case b.history == "" && history != "":
		missing = append(missing, "the history (add -history FOLDER)")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(b.path), hashKey)); err == nil || b.live {
		missing = append(missing, hashKey+" (copy it once: it does not change)")
	}
	return missing
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
