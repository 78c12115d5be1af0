// Package child runs one program as a process of its own: a sealed copy of the program, in a folder
// of its own, that ends with the router and takes all that it started with it.
package child
