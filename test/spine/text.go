package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// heading begins the tree of a goroutine in a recording.
const heading = "goroutine "

// writeText writes the trees as text: one line for each node, indented by its depth.
//
//	goroutine 1
//	~ pkg/informer/internal/reflector Reflector.Run
//	  + pkg/informer/internal/apply reflectorStore.Update
//	    ! pkg/informer/internal/apply a.mu
//	    + internal/rawjson Get ×2
func writeText(out io.Writer, way []goroutine) {
	for i, g := range way {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s%d\n", heading, i+1)
		for _, root := range g.roots {
			root.write(out, 0)
		}
	}
}

func (n *node) write(out io.Writer, depth int) {
	times := ""
	if n.times > 1 {
		times = fmt.Sprintf(" ×%d", n.times)
	}
	fmt.Fprintf(out, "%s%c %s %s%s\n", strings.Repeat("  ", depth), n.kind, n.dir, n.name, times)
	for _, c := range n.children {
		c.write(out, depth+1)
	}
}

// read reads what writeText has written. Other lines before the first goroutine are ignored.
func read(in io.Reader) (way []goroutine, err error) {
	var path []*node // the last node of each depth
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, heading) && !strings.Contains(line, ":"):
			way, path = append(way, goroutine{}), nil
			continue
		case len(way) == 0 || line == "":
			continue
		}
		n, err := parse(line)
		if err != nil {
			return nil, err
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if depth > len(path) {
			return nil, fmt.Errorf("%q is indented too far", line)
		}
		path = append(path[:depth], n)
		if depth == 0 {
			last := &way[len(way)-1]
			last.roots = append(last.roots, n)
		} else {
			path[depth-1].children = append(path[depth-1].children, n)
		}
	}
	return way, lines.Err()
}

// parse reads the line of a node: its mark, its package, its name, and how often.
func parse(line string) (*node, error) {
	words := strings.Fields(line)
	if len(words) < 3 || len(words) > 4 || len(words[0]) != 1 {
		return nil, fmt.Errorf("%q is no line of a recording", line)
	}
	n := &node{kind: kind(words[0][0]), dir: words[1], name: words[2], times: 1}
	if len(words) == 4 {
		var err error
		if n.times, err = strconv.Atoi(strings.TrimPrefix(words[3], "×")); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	return n, nil
}
