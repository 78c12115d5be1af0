// Package child runs a program as a process: a sealed copy of the program in a private folder. The
// process and its descendants end with the router.
package child
