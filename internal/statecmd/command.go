package statecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// stateFile is the name of the state file in state.dir.
const stateFile = "state.db"

// Command returns the command.
func Command() cli.Command {
	return cli.Command{
		Name:    "state",
		Summary: "Show or export the state folder, or make a backup of it",
		Description: `
The state folder (state.dir) has the objects of the sources, the positions of their watches, the backlogs and dead
letters of the routes, the state of their rules, the kv of handlers, and the history. These commands change nothing in
it.`,
		Commands: []cli.Command{inspectCommand(), exportCommand(), backupCommand()},
	}
}

func inspectCommand() cli.Command {
	return cli.Command{
		Name:    "inspect",
		Args:    "[FOLDER | FILE]",
		Summary: "Show the format, the size and the figures of a state folder",
		Description: `
It reads a state folder, or a state file such as a backup; by default, the state.dir of the configuration. If a router
uses the folder, it reads a backup, which that router makes: see router state backup. The output has no content of
objects. Of the folder of a stopped router it also counts the history, which it reads as a whole.`,
		Examples: []cli.Example{
			{Line: "router state inspect -config config.yaml", Text: "the state.dir of a configuration, with the names of the sources"},
			{Line: "router state inspect backup.db -o json", Text: "a backup, as JSON"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := newSelection(f)
			var output string
			f.ChoiceVar(&output, "o", "table", []string{"table", "json"}, "the format of the output")
			return c.run(func(ctx context.Context, s cli.Streams, db *checkpoint.DB) error {
				report, err := inspect(db, c.path)
				if err != nil {
					return err
				}
				if report.History, err = inspectHistory(ctx, c.historyDir()); err != nil {
					return err
				}
				if c.live {
					cli.Printf(s.Err, "The history of a running router is not counted: see router history and router runs.\n")
				}
				if err := c.nameSources(report); err != nil {
					return err
				}
				if output == "json" {
					return s.PrintJSON(report)
				}
				return printReport(s.Out, report)
			})
		},
	}
}

func exportCommand() cli.Command {
	return cli.Command{
		Name:    "export",
		Args:    "[FOLDER | FILE]",
		Summary: "Print the content of a state folder as lines of JSON",
		Description: `
It reads a state folder, or a state file such as a backup; by default, the state.dir of the configuration. If a router
uses the folder, it reads a backup, which that router makes: see router state backup. The output has the objects, deltas
and kv in clear text. Of Secrets it has the identity only.

With -history it prints the history in the folder of a stopped router instead: changes and decisions, in the order of
time. A running router answers router history and router runs, and router backtest -save keeps a recording.`,
		Examples: []cli.Example{
			{Line: `router state export ./state | jq 'select(.type == "pending") | .delta.op'`, Text: "the ops of the pending deltas"},
			{Line: `router state export -history ./state | jq 'select(.outcome == "dropped")'`, Text: "the decisions that dropped a delta"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := newSelection(f)
			var past, states bool
			f.BoolVar(&past, "history", false, "print the history instead of the state")
			f.BoolVar(&states, "states", false, "with -history: also print the objects before and after each change, in clear text")
			export := c.run(func(ctx context.Context, s cli.Streams, db *checkpoint.DB) error {
				if !past {
					return Export(db, c.path, s.Raw)
				}
				return c.exportHistory(ctx, s, states)
			})
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if states && !past {
					return cli.Mistakef("-states is about the history: add -history")
				}
				c.stopped = past
				return export(ctx, s, args)
			}
		},
	}
}

// selection is the state of a command line: a state file, or that of a running router.
type selection struct {
	cli.Remote

	flags *cli.Flags
	path  string         // of the state file; empty: only the API is known
	cfg   *config.Config // nil: the command line names no configuration
	// stopped: the history is needed, which is not read while a router writes it
	stopped bool
	live    bool // a router uses the state
}

func newSelection(f *cli.Flags) *selection {
	c := &selection{flags: f}
	c.AddAddress(f)
	return c
}

// run finds the state, and opens it for do.
func (c *selection) run(do func(ctx context.Context, s cli.Streams, db *checkpoint.DB) error) cli.Run {
	return func(ctx context.Context, s cli.Streams, args []string) error {
		if len(args) > 1 {
			return cli.Mistakef("name one folder, not %q and %q", args[0], args[1])
		}
		db, err := c.open(ctx, args)
		if err != nil {
			return err
		}
		if db == nil {
			return c.copied(ctx, func(db *checkpoint.DB) error { return do(ctx, s, db) })
		}
		return errors.Join(explain(do(ctx, s, db)), db.Close())
	}
}

// copied calls do with a copy of the state of the running router.
func (c *selection) copied(ctx context.Context, do func(db *checkpoint.DB) error) (err error) {
	dir, err := os.MkdirTemp("", "deltarouter-state-")
	if err != nil {
		return fileerr.Explain(err)
	}
	defer func() { err = errors.Join(err, fileerr.Explain(os.RemoveAll(dir))) }()
	path := filepath.Join(dir, stateFile)
	if _, err := write(path, func(w io.Writer) (time.Time, error) { return c.Client.Backup(ctx, w) }); err != nil {
		return err
	}
	if c.path == "" {
		c.path = c.To.Addr + c.To.Pod // one of them
	}
	db, err := checkpoint.OpenReadOnly(path)
	if err != nil {
		return explain(err)
	}
	return errors.Join(explain(do(db)), db.Close())
}

// open opens the state file of a command line with at most one folder. It returns nil if a router
// uses the file, and sets the client of its API.
func (c *selection) open(ctx context.Context, folder []string) (db *checkpoint.DB, err error) {
	defer func() { c.live = db == nil && err == nil }()
	if c.Given() && len(folder) > 0 {
		return nil, cli.Mistakef("name either a folder, or a router with -api or -in")
	}
	if c.Given() && c.stopped {
		return nil, errors.New("the history of a running router " + notWhileItRuns)
	}
	if c.Given() {
		if err := c.Connect(ctx); err != nil {
			return nil, err
		}
		return nil, c.configure(false)
	}
	if err := c.find(folder); err != nil {
		return nil, err
	}
	db, err = checkpoint.OpenReadOnly(c.path)
	var locked *checkpoint.LockedError
	switch {
	case !errors.As(err, &locked):
		return db, explain(err)
	case c.stopped:
		return nil, fmt.Errorf("%s is used by %s, and the history of a running router %s", c.path, locked.Holder(), notWhileItRuns)
	case c.cfg == nil:
		return nil, fmt.Errorf("%s is used by %s: name the API of that router with -api ADDR, or its configuration with -config FILE, or stop it", c.path, locked.Holder())
	case c.cfg.Listen.API == "":
		return nil, fmt.Errorf("%s is used by %s, and %s has no listen.api: add it and restart the router, or stop the router", c.path, locked.Holder(), c.Config)
	}
	return nil, c.ConnectTo(ctx, c.cfg)
}

// notWhileItRuns ends an error about the history of a running router.
const notWhileItRuns = "is not read while it is written: stop the router, or read it with router history and router runs, " +
	"or keep a recording with router backtest -save FILE"

// configure loads the configuration, if the command line names it or it is needed.
func (c *selection) configure(needed bool) (err error) {
	if needed || c.flags.Given("config") {
		c.cfg, err = load(c.Config)
	}
	return err
}

// find sets the path and the configuration.
func (c *selection) find(folder []string) (err error) {
	if err := c.configure(len(folder) == 0); err != nil {
		return err
	}
	if len(folder) == 0 {
		if c.cfg.State.Dir == "" {
			return cli.Invalid(fmt.Errorf("%s has no state.dir, so its router keeps no state: name a folder", c.Config))
		}
		folder = []string{c.cfg.State.Dir}
	}
	c.path, err = fileIn(folder[0])
	return err
}

// load reads a configuration, also if it has mistakes: the variables of the router may not be set
// here.
func load(path string) (*config.Config, error) {
	cfg, problems := config.Load(path, config.Policy{})
	if cfg == nil {
		return nil, problems
	}
	return cfg, nil
}

// fileIn returns the state file in a folder; a file is one itself.
func fileIn(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", cli.Invalid(fmt.Errorf("there is no state folder or state file %s", path))
	}
	if err == nil && info.IsDir() {
		path = filepath.Join(path, stateFile)
		info, err = os.Stat(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", cli.Invalid(fmt.Errorf("there is no state file %s", path))
	case err != nil:
		return "", cli.Invalid(fileerr.Explain(err))
	case !info.Mode().IsRegular():
		return "", cli.Invalid(fmt.Errorf("%s is no file: name a state folder or a state file", path))
	}
	return path, nil
}

// explain adds the remedy to an error about a state file.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, checkpoint.ErrCorrupt):
		return cli.Invalid(fmt.Errorf("%w: if it is a state file, restore a backup; a router that finds it so moves it away and begins a new one", err))
	}
	return fileerr.Explain(err)
}
