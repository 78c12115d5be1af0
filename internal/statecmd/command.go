// Package statecmd is the command `router state`: it shows, exports and copies the state of a
// router.
package statecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/checkpoint/archive"
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
letters of the routes, the state of their rules, and the kv of handlers. These commands change nothing in it.`,
		Commands: []cli.Command{inspectCommand(), exportCommand(), backupCommand()},
	}
}

func inspectCommand() cli.Command {
	return cli.Command{
		Name:    "inspect",
		Args:    "[FOLDER | FILE]",
		Summary: "Show the format, the size and the figures of a state folder",
		Description: `
It reads a state folder, or a state file such as a backup; by default, the state.dir of the configuration. While a router
uses the folder, inspect a backup: see router state backup. The output has no content of objects.`,
		Examples: []cli.Example{
			{Line: "router state inspect -config config.yaml", Text: "the state.dir of a configuration, with the names of the sources"},
			{Line: "router state inspect backup.db -o json", Text: "a backup, as JSON"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := newSelection(f)
			var output string
			f.ChoiceVar(&output, "o", "table", []string{"table", "json"}, "the format of the output")
			return c.run(func(s cli.Streams, db *checkpoint.DB) error {
				report, err := archive.Inspect(db, c.path)
				if err != nil {
					return err
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
It reads a state folder, or a state file such as a backup; by default, the state.dir of the configuration. While a router
uses the folder, export a backup: see router state backup. The output has the objects, deltas and kv in clear text.
Of Secrets it has the identity only.`,
		Examples: []cli.Example{
			{Line: `router state export ./state | jq 'select(.type == "pending") | .delta.op'`, Text: "the ops of the pending deltas"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := newSelection(f)
			return c.run(func(s cli.Streams, db *checkpoint.DB) error { return archive.Export(db, c.path, s.Raw) })
		},
	}
}

// selection is the state file of a command line.
type selection struct {
	flags  *cli.Flags
	config string

	path string         // of the state file
	cfg  *config.Config // nil: the command line names no configuration
}

func newSelection(f *cli.Flags) *selection {
	c := &selection{flags: f}
	f.ConfigVar(&c.config, "the configuration, for its state.dir and the names of its sources")
	return c
}

// run finds the state file, and opens it for do.
func (c *selection) run(do func(s cli.Streams, db *checkpoint.DB) error) cli.Run {
	return func(_ context.Context, s cli.Streams, args []string) error {
		if err := c.find(args); err != nil {
			return err
		}
		db, err := open(c.path)
		if err != nil {
			return err
		}
		return errors.Join(explain(c.path, do(s, db)), db.Close())
	}
}

// find sets the path and the configuration.
func (c *selection) find(args []string) (err error) {
	if len(args) > 1 {
		return cli.Mistakef("name one folder, not %q and %q", args[0], args[1])
	}
	if len(args) == 0 || c.flags.Given("config") {
		if c.cfg, err = load(c.config); err != nil {
			return err
		}
	}
	if len(args) == 1 {
		c.path, err = fileIn(args[0])
		return err
	}
	if c.cfg.State.Dir == "" {
		return cli.Invalid(fmt.Errorf("%s has no state.dir, so its router keeps no state: name a folder", c.config))
	}
	c.path, err = fileIn(c.cfg.State.Dir)
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

// open opens a state file to be read.
func open(path string) (*checkpoint.DB, error) {
	db, err := checkpoint.OpenReadOnly(path)
	return db, explain(path, err)
}

// explain adds the remedy to an error about a state file.
func explain(path string, err error) error {
	var locked *checkpoint.LockedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked):
		return fmt.Errorf("%s is used by %s: name a backup of it, see router help state backup, or stop the router", path, locked.Holder())
	case errors.Is(err, checkpoint.ErrCorrupt):
		return cli.Invalid(fmt.Errorf("%w: if it is a state file, restore a backup; a router that finds it so moves it away and begins a new one", err))
	}
	return fileerr.Explain(err)
}
