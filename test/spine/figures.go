package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// rooms are the parts of the architecture, by the beginnings of their packages. A package in none
// of them is a leaf, such as internal/rawjson: it works for the room that calls it.
var rooms = []string{
	"pkg/informer", "pkg/index", "pkg/filters", "internal/cel", "internal/pipeline", "pkg/plugins",
	"internal/checkpoint", "internal/kv", "internal/inspect", "internal/router", "internal/commands",
}

// roomOf returns the room of a package; empty: it is a leaf.
func roomOf(dir string) string {
	for _, room := range rooms {
		if dir == room || strings.HasPrefix(dir, room+"/") {
			return room
		}
	}
	return ""
}

// figures are counted in the trees.
type figures struct {
	stages     []string // their rooms
	packages   []string // in the order of the way
	functions  int      // distinct ones, with literals
	literals   int
	loops      int      // functions that were running before
	reentries  []string // distinct edges
	locks      []string // one for each time that a lock is taken
	goroutines int
}

// count counts the figures of the way, or of a part of it. imports has the packages that a package
// imports, directly or not.
func count(way []goroutine, imports map[string]map[string]bool) (f figures) {
	f.goroutines = len(way)
	functions := make(map[call]bool)
	for _, g := range way {
		room := "" // another goroutine is another stage
		walk(g.roots, nil, func(n, parent *node) {
			if n.kind == locks {
				for range n.times {
					f.locks = append(f.locks, n.dir+" "+n.name)
				}
				return
			}
			functions[n.call()] = true
			if !slices.Contains(f.packages, n.dir) {
				f.packages = append(f.packages, n.dir)
			}
			if r := roomOf(n.dir); r != "" && r != room {
				room = r
				f.stages = append(f.stages, r)
			}
			if parent == nil || !imports[n.dir][parent.dir] {
				return
			}
			edge := fmt.Sprintf("%s %s → %s %s", parent.dir, parent.name, n.dir, n.name)
			if !slices.Contains(f.reentries, edge) {
				f.reentries = append(f.reentries, edge)
			}
		})
	}
	for c := range functions {
		switch {
		case c.kind == running && functions[call{c.dir, c.name, called}]:
			continue
		case c.kind == running:
			f.loops++
		case isLiteral(c.name):
			f.literals++
		}
		f.functions++
	}
	return f
}

// walk calls do for each node and the function that calls it, in the order of the way.
func walk(nodes []*node, parent *node, do func(n, parent *node)) {
	for _, n := range nodes {
		do(n, parent)
		walk(n.children, n, do)
	}
}

func isLiteral(name string) bool {
	_, last := cutLast(name)
	return strings.HasPrefix(last, "func") && last != "func"
}

// cutLast cuts a name at its last dot.
func cutLast(name string) (before, last string) {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return "", name
	}
	return name[:at], name[at+1:]
}

// report prints the figures of the whole way and of each goroutine, and lists the stages, the
// re-entries and the locks.
func report(out io.Writer, way []goroutine, imports map[string]map[string]bool) {
	all := count(way, imports)
	fmt.Fprintf(out, "stages              %d\n", len(all.stages))
	fmt.Fprintf(out, "packages            %d\n", len(all.packages))
	fmt.Fprintf(out, "functions           %d, with %d literals and %d that wait in a loop\n", all.functions, all.literals, all.loops)
	fmt.Fprintf(out, "upward re-entries   %d\n", len(all.reentries))
	fmt.Fprintf(out, "lock acquisitions   %d of %d locks\n", len(all.locks), len(distinct(all.locks)))
	fmt.Fprintf(out, "goroutines          %d, so %d hand-overs\n\n", all.goroutines, all.goroutines-1)
	for i, g := range way {
		f := count([]goroutine{g}, imports)
		fmt.Fprintf(out, "goroutine %d: %d stages, %d packages, %d functions, %d re-entries, %d locks\n",
			i+1, len(f.stages), len(f.packages), f.functions, len(f.reentries), len(f.locks))
	}
	fmt.Fprintf(out, "\nThe stages: %s.\n", strings.Join(all.stages, ", "))
	var leaves []string
	for _, dir := range all.packages {
		if roomOf(dir) == "" {
			leaves = append(leaves, dir)
		}
	}
	fmt.Fprintf(out, "\nThe leaves: %s.\n", strings.Join(leaves, ", "))
	fmt.Fprintf(out, "\nThe re-entries, from a package into one that imports it:\n")
	for _, edge := range all.reentries {
		fmt.Fprintf(out, "  %s\n", edge)
	}
	fmt.Fprintf(out, "\nThe locks:\n")
	for _, name := range distinct(all.locks) {
		n := 0
		for _, taken := range all.locks {
			if taken == name {
				n++
			}
		}
		fmt.Fprintf(out, "  %d %s\n", n, name)
	}
}

// distinct returns each text once, in the order of their first places.
func distinct(all []string) (once []string) {
	for _, s := range all {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// importsOf returns the packages of the product that each of its packages imports, directly or not.
func importsOf(ctx context.Context, root string) (map[string]map[string]bool, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./cmd/router")
	list.Dir, list.Stderr = root, os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := make(map[string]map[string]bool)
	for line := range strings.Lines(string(text)) {
		paths := strings.Fields(line)
		dir, own := strings.CutPrefix(paths[0], module+"/")
		if !own {
			continue // a library
		}
		all[dir] = make(map[string]bool)
		for _, imported := range paths[1:] {
			if imported, own := strings.CutPrefix(imported, module+"/"); own {
				all[dir][imported] = true
			}
		}
	}
	return all, nil
}
