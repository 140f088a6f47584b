"""What a masked sum was made of is remembered by the work that was asked, whatever run or session asks it again."""
