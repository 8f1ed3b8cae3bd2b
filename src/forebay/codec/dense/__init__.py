"""`dense`: as `bounded`, smaller and slower; for links and disks that are the limit."""

from forebay.codec.dense.codec import Dense as Dense
