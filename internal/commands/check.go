package commands

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
)

// checkCommand reports the mistakes of a configuration.
func checkCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "check",
		Args:    "[FILE | FOLDER]…",
		Summary: "Report every mistake of a configuration",
		Description: `
It needs no cluster and runs no plugin. With -connect it asks the cluster for its schemas and for the router's
permissions, prints roles with the missing ones, and tries to reach the sinks. With a fleet it prints the permissions in
NATS too, and compares them, the version, the limits and the existing streams of the servers with the needed ones.

For each source with cache: auto it prints the fields that the cache keeps, and for which routes. With state.dir it
prints the routes whose new objects are on disk before they are delivered.

The comment # check: ok at the end of a line silences a warning about it.`,
		Examples: []cli.Example{
			{Line: "router check", Text: "check config.yaml"},
			{Line: "router check a.yaml b.yaml -strict", Text: "check two configurations; warnings count as mistakes"},
			{Line: "router check rules/", Text: "check the configuration that the files of a folder make up"},
			{Line: "kubectl get configmap router -o jsonpath='{.data.config\\.yaml}' | router check -", Text: "check standard input"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &checking{made: made, given: f}
			f.ConfigVar(&c.path, "the configuration, if no FILE is given")
			f.BoolVar(&c.opts.Connect, "connect", false, "ask the cluster, and try to reach the sinks")
			schemasVar(f, &c.opts.Schemas)
			f.BoolVar(&c.strict, "strict", false, "a warning counts as a mistake")
			f.ChoiceVar(&c.output, "o", "text", []string{"text", "json"}, "the format of the output")
			c.compiled.AddFlag(f)
			cli.PolicyFlags(f, &c.made.Policy)
			return c.run
		},
	}
}

// checking is a use of router check.
type checking struct {
	path, output string
	opts         check.Options
	compiled     cli.Compiled
	strict       bool
	made         compile.Components
	given        *cli.Flags
}

// report is the output of router check -o json.
type report struct {
	OK       bool      `json:"ok"`
	Problems []finding `json:"problems"`
	Roles    string    `json:"roles,omitempty"` // of -connect
	NATS     string    `json:"nats,omitempty"`  // of -connect

	Kept    []check.Kept  `json:"kept,omitempty"`    // by sources with cache: auto
	Durable check.Durable `json:"durable,omitempty"` // routes
}

// finding is a problem or a warning.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Path     string `json:"path,omitempty"`
	Severity string `json:"severity"` // error or warning
	Message  string `json:"message"`
}

// run checks each file as a configuration of its own.
func (c *checking) run(ctx context.Context, s cli.Streams, paths []string) error {
	if c.opts.Connect && c.opts.Schemas != "" {
		return cli.Mistakef("-connect asks the cluster, so -schemas has no effect: leave one out")
	}
	switch {
	case len(paths) == 0:
		paths = []string{c.path}
	case c.given.Given("config"):
		return cli.Mistakef("name the configurations either as FILE or with -config")
	}
	c.opts.Folders = new(compile.SavedFolders)
	c.opts.Cache = c.compiled.Folder(cli.Logging{}.New(s.Err))
	all := report{OK: true, Problems: []finding{}}
	for _, path := range paths {
		_, progress := startProgress(s, "check "+path)
		found := check.File(ctx, path, c.made, c.opts)
		progress.Stop()
		ok := len(found.Problems) == 0 && (!c.strict || len(found.Warnings) == 0)
		all.OK = all.OK && ok
		if c.output == "json" {
			all.add(found)
		} else {
			printFindings(s, path, found, ok)
		}
	}
	if c.output == "json" {
		if err := s.PrintJSON(all); err != nil {
			return err
		}
	}
	if !all.OK {
		return cli.Exit(cli.CodeUsage)
	}
	return nil
}

// add adds the findings about one configuration.
func (r *report) add(found check.Findings) {
	for _, p := range slices.Concat(found.Problems, found.Warnings).Sorted() {
		severity := "error"
		if p.Warning {
			severity = "warning"
		}
		r.Problems = append(r.Problems, finding{p.File, p.Line, p.Column, p.Path, severity, p.Message})
	}
	r.Roles += found.Roles
	r.NATS += found.NATS
	r.Kept = append(r.Kept, found.Kept...)
	r.Durable = append(r.Durable, found.Durable...)
}

func printFindings(s cli.Streams, path string, found check.Findings, ok bool) {
	if all := slices.Concat(found.Problems, found.Warnings); len(all) > 0 {
		fmt.Fprintln(s.Err, all.Quoted())
	}
	notes := s.Out
	if found.Roles != "" || found.NATS != "" { // standard output is for kubectl apply, or NATS
		notes = s.Err
	}
	for i := range found.Kept {
		fmt.Fprint(notes, &found.Kept[i])
	}
	fmt.Fprint(notes, found.Durable)
	fmt.Fprint(s.Out, found.Roles, found.NATS)
	if ok && found.Roles == "" {
		fmt.Fprintf(s.Out, "%s: ok\n", cli.ConfigName(path))
	}
}
