// Figures prints measures of the router's code: how many packages, edges and names a reader meets,
// and what makes it hard to say who owns a value. They are instruments, not limits: no test fails
// on them. Where a figure and a clear design disagree, the design wins.
//
//	go run ./tools/figures          # the figures of this repository
//	go run ./tools/figures -list    # also the places behind those that count places
//
// The figures are those of the non-test files in cmd, internal and pkg. They are read from the
// syntax, without types, because type-checking takes minutes: each figure says where that makes a
// difference. `go run ./test/spine` prints the figures of the way of one delta.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	list := flag.Bool("list", false, "print the places, too")
	flag.Parse()
	if err := run(os.Stdout, os.DirFS(*root), *list); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// run prints the figures of the repository in a file system.
func run(out io.Writer, repository fs.FS, list bool) error {
	t, err := read(repository)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		value, places := f.of(t)
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.letter, f.name, value)
		if !list {
			continue
		}
		slices.Sort(places)
		for _, p := range places {
			fmt.Fprintf(w, "\t  %s\n", p)
		}
	}
	return w.Flush()
}

// figure is one measure.
type figure struct {
	letter, name string
	of           func(tree) (value string, places []string)
}

// figures are in the order in which they are printed. The letters are those of the review that
// introduced them; the missing ones are measured elsewhere: e, the number of structs for one route,
// by reading, and i by test/spine.
var figures = []figure{
	{"a", "packages", packages},
	{"b", "import edges, packages in the longest chain", imports},
	{"d", "exported functions and methods, types", exported},
	{"f", "structs that embed a pointer to a struct with a lock of the same package", wholes},
	{"g", "chains of three exported selectors in internal/pipeline", reaches},
	{"h", "struct fields that are functions", functionFields},
	{"", "comment lines per 100 lines of functions", comments},
	{"", "switches without a tag per 1,000 lines", tagless},
	{"", "functions above 25 lines without a comment inside, in the rooms of the flow", silent},
}

// counted is the value and the places of a figure that counts places.
func counted(places []string) (string, []string) { return fmt.Sprint(len(places)), places }

// perLines is a number per lines, with one digit.
func perLines(n, per, lines int) string {
	if lines == 0 {
		return "0.0"
	}
	return fmt.Sprintf("%.1f", float64(n*per)/float64(lines))
}

// under reports whether a folder is one of the given ones, or below one.
func under(dir string, tops ...string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") })
}
